/* Streamed weights that lie prepared in a file: the same bits at every run, and what cannot be written is prepared anew. */
#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <tern/ops.h>
#include <tern/weights.h>

#include "core/context.h"
#include "model_help.h"
#include "support.h"

#define VALUES (2 * 4 * 8 * 8)

struct fixture {
    struct tern_context *ctx;
    struct tern_pipeline *p;
    struct tern_plan *plan;
    struct tern_binding *binding;
    tern_tensor *in[TERN_GRAPH_MAX_IO], *out;
};

/* A UNet that keeps no prepared weight. */
static void open_fixture(struct fixture *f, const char *cache, const char *quantize, size_t resident)
{
    char path[PATH_SIZE];
    *f = (struct fixture){.ctx = tern_context_create(&(struct tern_context_params){.threads = 2, .cache_dir = cache})};
    f->p = model_load(f->ctx, model_path("sd1", path));
    struct tern_graph *g = tern_pipeline_graph(f->p, "unet", &(struct tern_graph_size){2, 64, 64});
    f->plan = tern_plan_compile(g, &(struct tern_plan_params){.without = "algorithm", .resident = resident, .quantize = quantize});
    f->binding = tern_plan_bind(f->plan, tern_pipeline_weights(f->p, "unet"));
    if (!f->binding)
        fail_msg("%s", tern_error(f->ctx));
    model_inputs(f->binding, f->in);
    tern_graph_destroy(&g);
}

static void close_fixture(struct fixture *f)
{
    for (int i = 0; i < TERN_GRAPH_MAX_IO; i++)
        tern_tensor_unref(&f->in[i]);
    tern_tensor_unref(&f->out);
    tern_binding_unref(&f->binding);
    tern_plan_unref(&f->plan);
    tern_pipeline_destroy(&f->p);
    tern_context_destroy(&f->ctx);
}

static void run(struct fixture *f, float *values)
{
    if (tern_plan_run(f->binding, f->in, &f->out) || tern_tensor_read(f->out, TERN_F32, values, VALUES * sizeof(float)))
        fail_msg("%s", tern_error(f->ctx));
}

/* The file of streamed weights that the process has open: a descriptor of the test's own; -1: there is none. */
static int open_spill(const char *cache)
{
    char name[300], target[PATH_SIZE];
    DIR *d = opendir("/proc/self/fd");
    int found = -1;
    for (struct dirent *e; d && found < 0 && (e = readdir(d));) {
        snprintf(name, sizeof(name), "/proc/self/fd/%s", e->d_name);
        ssize_t n = readlink(name, target, sizeof(target) - 1);
        target[n > 0 ? n : 0] = 0;
        if (!strncmp(target, cache, strlen(cache)) && strstr(target, "/stream/"))
            found = open(name, O_RDWR);
    }
    if (d)
        closedir(d);
    return found;
}

static void make_cache(char path[PATH_SIZE])
{
    const char *tmp = getenv("TMPDIR");
    snprintf(path, PATH_SIZE, "%s/tern-streaming-XXXXXX", tmp ? tmp : "/tmp");
    assert_non_null(mkdtemp(path));
}

static void remove_cache(const char *path)
{
    char folder[PATH_SIZE + 16];
    snprintf(folder, sizeof(folder), "%s/stream", path);
    assert_int_equal(rmdir(folder), 0); /* nothing is left in it */
    assert_int_equal(rmdir(path), 0);
}

/* f32 and int8, all and half of the weights; from the second run on no run allocates. */
static void all_runs_are_the_same_bits(void **state)
{
    char cache[PATH_SIZE];
    static float expected[VALUES], found[VALUES];
    make_cache(cache);
    for (int i = 0; i < 4; i++) {
        const char *quantize = i % 2 ? "*" : NULL;
        struct fixture f;
        open_fixture(&f, cache, quantize, 0);
        const size_t all = tern_plan_facts(f.plan).resident;
        assert_int_equal(tern_plan_facts(f.plan).travels, 0);
        run(&f, expected);
        close_fixture(&f);
        open_fixture(&f, cache, quantize, i < 2 ? 1 : all / 2);
        const struct tern_plan_facts facts = tern_plan_facts(f.plan);
        assert_true(facts.travels >= all - facts.resident && facts.travels < all - facts.resident + 4096 * (size_t)facts.streamed);
        uint64_t allocations = 0;
        for (int r = 0; r < 4; r++) {
            run(&f, found);
            assert_memory_equal(found, expected, sizeof(found));
            assert_true(!r || tern_memory_allocations(f.ctx) == allocations);
            allocations = tern_memory_allocations(f.ctx);
            const int file = open_spill(cache);
            assert_int_equal(file >= 0, r > 0);
            close(file);
        }
        close_fixture(&f);
        assert_int_equal(open_spill(cache), -1);
    }
    remove_cache(cache);
}

/* Weights that are gone from the file are missed; those that are prepared anew are not. */
static void later_runs_read_the_file(void **state)
{
    char cache[PATH_SIZE];
    static float expected[VALUES], found[VALUES];
    static const char zeros[4096];
    struct fixture f;
    make_cache(cache);
    open_fixture(&f, cache, NULL, 1);
    run(&f, expected);
    run(&f, found);
    const int file = open_spill(cache);
    const size_t size = tern_plan_facts(f.plan).travels;
    struct stat st;
    assert_true(file >= 0 && !fstat(file, &st));
    assert_int_equal(st.st_size, size);
    for (size_t at = 0; at < size; at += sizeof(zeros))
        assert_int_equal(pwrite(file, zeros, sizeof(zeros), (off_t)at), sizeof(zeros));
    run(&f, found);
    assert_true(memcmp(found, expected, sizeof(found)) != 0);
    tern_binding_set_streaming(f.binding, TERN_STREAMING_PREPARE);
    run(&f, found);
    assert_memory_equal(found, expected, sizeof(found));
    tern_binding_set_streaming(f.binding, TERN_STREAMING_DEMAND); /* begins anew */
    for (int r = 0; r < 3; r++) {
        run(&f, found);
        assert_memory_equal(found, expected, sizeof(found));
    }
    /* an error of another call stays as it is, and so does how weights travel */
    assert_null(tern_weights_open(f.ctx, "/"));
    const enum tern_status before = tern_error_status(f.ctx);
    assert_int_equal(before, TERN_E_IO);
    tern_binding_set_streaming(f.binding, TERN_STREAMING_SPILL);
    assert_int_equal(tern_error_status(f.ctx), before);
    tern_error_clear(f.ctx);
    run(&f, found);
    assert_memory_equal(found, expected, sizeof(found));
    close(file);
    close_fixture(&f);
    remove_cache(cache);
}

/* No folder can be made; none can be written; nobody is hurt. */
static void a_folder_that_cannot_be_used(void **state)
{
    char cache[PATH_SIZE], inside[PATH_SIZE + 16];
    static float expected[VALUES], found[VALUES];
    make_cache(cache);
    snprintf(inside, sizeof(inside), "%s/stream", cache);
    fclose(fopen(inside, "w"));
    struct fixture f;
    open_fixture(&f, cache, NULL, 1);
    for (int r = 0; r < 3; r++) {
        run(&f, r ? found : expected);
        assert_true(!r || !memcmp(found, expected, sizeof(found)));
    }
    assert_int_equal(tern_error_status(f.ctx), TERN_OK);
    close_fixture(&f);
    unlink(inside);
    open_fixture(&f, cache, NULL, 1);
    rmdir(inside);
    for (int r = 0; r < 3; r++) {
        run(&f, found);
        assert_memory_equal(found, expected, sizeof(found));
    }
    close_fixture(&f);
    rmdir(cache);
}

/* Files may not be as large: weights are prepared anew, and the process goes on. */
static void a_limit_of_file_sizes(void **state)
{
    char cache[PATH_SIZE];
    static float expected[VALUES], found[VALUES];
    struct rlimit before, less;
    struct fixture f;
    make_cache(cache);
    open_fixture(&f, cache, NULL, 1);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    less = before;
    less.rlim_cur = tern_plan_facts(f.plan).travels - 1;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &less), 0);
    for (int r = 0; r < 3; r++) {
        run(&f, r ? found : expected);
        assert_true(!r || !memcmp(found, expected, sizeof(found)));
    }
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(tern_error_status(f.ctx), TERN_OK);
    close_fixture(&f);
    remove_cache(cache);
}

/* A weight in int8 by a scale that the caller gives. */
static enum tern_status in_bytes(void *user, tern_tensor *const *in, tern_tensor **out)
{
    out[0] = tern_cast(tern_quantize(tern_weights_get(user, "w"), in[0]), TERN_F32);
    return tern_error_status(tern_tensor_context(in[0]));
}

/* On a device with memory of its own, where what is made of weights alone is the same at every run. */
static void what_an_input_decides_is_made_anew(void **state)
{
    char cache[PATH_SIZE];
    const struct tern_graph_input in = {"scale", TERN_F32, 1, {2}};
    make_cache(cache);
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.device = "far", .threads = 1, .cache_dir = cache});
    struct tern_weights *w = tern_weights_create(ctx);
    tern_tensor *t = tern_tensor_create(ctx, TERN_F32, 2, (const int64_t[]){2, 2}, (const float[]){12, -24, 36, 60}), *y = NULL;
    assert_int_equal(tern_weights_add(w, "w", t), TERN_OK);
    tern_tensor_unref(&t);
    struct tern_graph *g = tern_graph_trace(ctx, in_bytes, w, w, &in, 1, 1);
    struct tern_plan *p = tern_plan_compile(g, &(struct tern_plan_params){.resident = 1});
    struct tern_binding *b = tern_plan_bind(p, w);
    assert_non_null(b);
    assert_int_equal(tern_plan_facts(p).streamed, 1);
    for (int by = 1; by <= 4; by++) { /* what the second run writes a third one would read */
        float scale[] = {(float)by, (float)by}, found[4];
        const float expected[] = {12 / scale[0], -24 / scale[0], 36 / scale[0], 60 / scale[0]};
        t = tern_tensor_create(ctx, TERN_F32, 1, (const int64_t[]){2}, scale);
        assert_int_equal(tern_plan_run(b, &t, &y), TERN_OK);
        assert_int_equal(tern_tensor_read(y, TERN_F32, found, sizeof(found)), TERN_OK);
        assert_memory_equal(found, expected, sizeof(found));
        tern_tensor_unref(&t);
    }
    tern_tensor_unref(&y);
    tern_binding_unref(&b);
    tern_plan_unref(&p);
    tern_graph_destroy(&g);
    tern_weights_unref(&w);
    tern_context_destroy(&ctx);
    assert_int_equal(rmdir(cache), 0);
}

/* The part of a step's time in which its weights came is told. */
static void count_bring(void *user, const struct tern_step_profile *s)
{
    assert_true(s->bring >= 0 && s->bring <= s->seconds);
    *(int *)user += s->bring > 0;
}

static void profiles_tell_what_bringing_takes(void **state)
{
    for (int streams = 0; streams < 2; streams++) {
        struct fixture f;
        int steps = 0;
        open_fixture(&f, NULL, NULL, (size_t)streams);
        assert_int_equal(tern_plan_profile(f.binding, f.in, &f.out, count_bring, &steps), TERN_OK);
        assert_int_equal(steps, tern_plan_facts(f.plan).streamed);
        assert_int_equal(steps > 0, streams);
        close_fixture(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_runs_are_the_same_bits),         cmocka_unit_test(later_runs_read_the_file),
        cmocka_unit_test(a_folder_that_cannot_be_used),       cmocka_unit_test(a_limit_of_file_sizes),
        cmocka_unit_test(what_an_input_decides_is_made_anew), cmocka_unit_test(profiles_tell_what_bringing_takes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
