/* Plans that are kept: shared by pipelines, the oldest gone first, found again on disk, rebuilt when the file is damaged. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <tern/ops.h>

#include "core/context.h"
#include "graph/plan.h"
#include "model_help.h"
#include "models/pipelines/pipeline.h"
#include "ops/dispatch.h"
#include "support.h"

struct fixture {
    char folder[PATH_SIZE], file[2 * PATH_SIZE];
    int warnings;
    char last[TERN_ERROR_SIZE];
};

static void log_line(enum tern_log_level level, const char *message, void *user)
{
    struct fixture *f = user;
    f->warnings += level >= TERN_LOG_WARN;
    snprintf(f->last, sizeof(f->last), "%s", message);
}

static struct tern_context *open_context(struct fixture *f)
{
    struct tern_context *ctx =
        tern_context_create(&(struct tern_context_params){.threads = 1, .cache_dir = f->folder, .log = log_line, .user = f});
    assert_non_null(ctx);
    return ctx;
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    snprintf(f->folder, sizeof(f->folder), "/tmp/tern-plans-XXXXXX");
    *state = f;
    return mkdtemp(f->folder) ? 0 : 1;
}

/* The only file of the cache's plans; false: there is none. */
static bool find_file(struct fixture *f)
{
    char path[PATH_SIZE + 8];
    int files = 0;
    snprintf(path, sizeof(path), "%s/plans", f->folder);
    DIR *d = opendir(path);
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d))
        if (e->d_name[0] != '.') {
            snprintf(f->file, sizeof(f->file), "%s/%.255s", path, e->d_name);
            files++;
        }
    if (d)
        closedir(d);
    assert_true(files <= 1);
    return files == 1;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    char path[PATH_SIZE + 8];
    if (find_file(f))
        unlink(f->file);
    snprintf(path, sizeof(path), "%s/plans", f->folder);
    rmdir(path);
    int left = rmdir(f->folder);
    free(f);
    return left;
}

/* The plan that the pipeline has of its UNet at 64 x 64. */
static struct tern_plan *unet_plan(struct tern_pipeline *p)
{
    const struct tern_stage stage = {.component = "unet", .size = {2, 64, 64}};
    struct tern_plan *plan = tern_pipeline_plan(p, &stage);
    if (!plan)
        fail_msg("%s", tern_error(p->ctx));
    return plan;
}

/* Two checkpoints of one architecture have the same plan; another architecture has another one. */
static void checkpoints_share_plans(void **state)
{
    char path[PATH_SIZE];
    struct tern_context *ctx = open_context(*state);
    struct tern_pipeline *a = model_load(ctx, model_path("sd1", path)), *b = model_load(ctx, model_path("sd1", path)),
                         *other = model_load(ctx, model_path("sd1-heads", path));
    struct tern_plan *plan = unet_plan(a);
    assert_ptr_equal(unet_plan(b), plan);
    assert_ptr_not_equal(unet_plan(other), plan);
    tern_pipeline_destroy(&a);
    assert_ptr_equal(unet_plan(b), plan); /* it lives with whoever is left */
    tern_pipeline_destroy(&other);
    tern_pipeline_destroy(&b);
    tern_context_destroy(&ctx);
    struct fixture *f = *state;
    char folder[PATH_SIZE + 8];
    snprintf(folder, sizeof(folder), "%s/plans", f->folder);
    DIR *d = opendir(folder); /* two plans: emptied here, so that the other tests find one */
    assert_non_null(d);
    for (struct dirent *e = readdir(d); e; e = readdir(d))
        if (e->d_name[0] != '.') {
            snprintf(f->file, sizeof(f->file), "%s/%.255s", folder, e->d_name);
            assert_int_equal(unlink(f->file), 0);
        }
    closedir(d);
}

static enum tern_status scaled(void *user, tern_tensor *const *in, tern_tensor **out)
{
    out[0] = tern_mul_scalar(in[0], *(const double *)user);
    return tern_error_status(tern_tensor_context(in[0]));
}

static struct tern_plan *scale_plan_of(struct tern_context *ctx, int64_t n, double by)
{
    const struct tern_graph_input in = {"x", TERN_F32, 1, {n}};
    struct tern_graph *g = tern_graph_trace(ctx, scaled, &by, NULL, &in, 1, 1);
    struct tern_plan *plan = tern_plan_cached(g, NULL);
    assert_non_null(plan);
    tern_graph_destroy(&g);
    return plan;
}

static struct tern_plan *scale_plan(struct tern_context *ctx, double by) { return scale_plan_of(ctx, 4, by); }

static void the_oldest_goes_first(void **state)
{
    struct fixture *f = *state;
    struct tern_context *ctx = open_context(f);
    struct tern_plan *first = scale_plan(ctx, 1), *second = scale_plan(ctx, 2);
    for (int i = 3; i <= TERN_PLAN_CACHE; i++) {
        struct tern_plan *p = scale_plan(ctx, i);
        tern_plan_unref(&p);
    }
    struct tern_plan *again = scale_plan(ctx, 1); /* used last now */
    assert_ptr_equal(again, first);
    struct tern_plan *more = scale_plan(ctx, 0.5), *kept = scale_plan(ctx, 1), *lost = scale_plan(ctx, 2);
    assert_ptr_equal(kept, first);
    assert_ptr_not_equal(lost, second); /* ours is still whole, but the context has made another one */
    assert_int_equal(tern_plan_facts(second).launches, 1);
    struct tern_plan *all[] = {first, second, again, more, kept, lost};
    for (int i = 0; i < 6; i++)
        tern_plan_unref(&all[i]);
    assert_false(find_file(f)); /* plans as small as these are not worth a file */
    tern_context_destroy(&ctx);
}

static void a_plan_outlives_its_context(void **state)
{
    struct tern_context *ctx = open_context(*state);
    struct tern_plan *p = scale_plan(ctx, 3);
    struct tern_context *last = ctx;
    tern_context_destroy(&ctx);
    struct tern_plan *q = scale_plan(last, 3); /* nobody keeps plans for it any more */
    assert_ptr_not_equal(p, q);
    tern_plan_unref(&q);
    tern_plan_unref(&p);
}

struct dropping {
    struct tern_context *ctx;
    int asked;
};

/* As a job of another pipeline may that is made there. */
static bool drop_all(void *user)
{
    struct dropping *d = user;
    d->asked++;
    tern_plan_cache_drop(d->ctx);
    return false;
}

/* x by a number that is folded, which asks. */
static enum tern_status scaled_twice(void *user, tern_tensor *const *in, tern_tensor **out)
{
    out[0] = tern_mul(in[0], tern_mul_scalar(tern_tensor_create(user, TERN_F32, 1, (const int64_t[]){1}, (const float[]){3}), 2));
    return tern_error_status(user);
}

static void plans_are_dropped_while_one_is_made(void **state)
{
    struct dropping d = {NULL};
    size_t used[2];
    d.ctx = tern_context_create(&(struct tern_context_params){.threads = 1, .cancel = drop_all, .user = &d});
    assert_non_null(d.ctx);
    for (int i = 0; i < 2; i++) {
        const struct tern_graph_input in = {"x", TERN_F32, 1, {4}};
        struct tern_graph *g = tern_graph_trace(d.ctx, scaled_twice, d.ctx, NULL, &in, 1, 1);
        d.asked = 0;
        struct tern_plan *plan = tern_plan_cached(g, NULL);
        assert_non_null(plan);
        assert_true(d.asked > 0);
        tern_plan_unref(&plan);
        tern_graph_destroy(&g);
        tern_plan_cache_drop(d.ctx);
        used[i] = tern_memory_used(d.ctx);
    }
    assert_int_equal(used[1], used[0]); /* nothing keeps a plan that was made meanwhile */
    tern_context_destroy(&d.ctx);
}

/* Two plans under the name of a third: of another graph with the same input and output; and one that says that it is the third. */
static void another_plans_file_is_not_believed(void **state)
{
    struct fixture *f = *state;
    char text[TERN_KEY_TEXT], folder[PATH_SIZE + 8];
    for (int i = 0; i < 2; i++) {
        struct tern_context *ctx = open_context(f);
        struct tern_plan *own = scale_plan(ctx, 2), *other = scale_plan_of(ctx, i ? 5 : 4, 3);
        const struct tern_key key = own->key;
        other->key = i ? key : other->key;
        snprintf(folder, sizeof(folder), "%s/plans", f->folder);
        snprintf(f->file, sizeof(f->file), "%s/%s.plan", folder, tern_key_text(key, text));
        assert_true(i || !mkdir(folder, 0700));
        assert_int_equal(tern_plan_save(other, f->file), TERN_OK);
        tern_plan_unref(&own);
        tern_plan_unref(&other);
        tern_context_destroy(&ctx);
        ctx = open_context(f);
        f->warnings = 0;
        own = scale_plan(ctx, 2);
        tern_tensor *x = tern_tensor_create(ctx, TERN_F32, 1, (const int64_t[]){4}, (const float[]){1, 2, 3, 4}), *y = NULL;
        struct tern_binding *b = tern_plan_bind(own, NULL);
        float values[4];
        assert_int_equal(tern_plan_run(b, &x, &y), TERN_OK);
        assert_int_equal(tern_tensor_read(y, TERN_F32, values, sizeof(values)), TERN_OK);
        assert_memory_equal(values, ((const float[]){2, 4, 6, 8}), sizeof(values));
        assert_int_equal(f->warnings, 1);
        assert_non_null(strstr(f->last, "another graph"));
        tern_tensor_unref(&x);
        tern_tensor_unref(&y);
        tern_binding_unref(&b);
        tern_plan_unref(&own);
        tern_context_destroy(&ctx);
    }
}

/* Text of a plan: its graph after all passes. */
static void add_line(void *user, const char *line)
{
    char *text = user;
    strncat(text, line, 200000 - strlen(text) - 1);
}

static char *text_of(const struct tern_plan *p)
{
    char *text = calloc(1, 200000);
    tern_graph_print(tern_plan_graph(p), add_line, text);
    return text;
}

static void count_pass(void *user, const char *pass, const struct tern_graph *graph) { ++*(int *)user; }

/* What one context leaves on disk another one loads; a damaged file is told in one line and made anew. */
static void plans_are_found_on_disk(void **state)
{
    struct fixture *f = *state;
    char path[PATH_SIZE], *expected = NULL;
    long sizes[3];
    for (int i = 0; i < 3; i++) { /* compiled; loaded; damaged, so compiled */
        if (i == 2)
            assert_int_equal(truncate(f->file, sizes[1] / 2), 0);
        struct tern_context *ctx = open_context(f);
        struct tern_pipeline *p = model_load(ctx, model_path("sd1", path));
        struct tern_graph *g = tern_pipeline_graph(p, "unet", &(struct tern_graph_size){2, 64, 64});
        int passes = 0;
        f->warnings = 0;
        struct tern_plan *plan = tern_plan_cached(g, &(struct tern_plan_params){.after = count_pass, .user = &passes});
        assert_int_equal(passes == 0, i == 1); /* loading runs none */
        char *text = text_of(plan);
        tern_plan_unref(&plan);
        tern_graph_destroy(&g);
        assert_int_equal(f->warnings, i == 2);
        assert_true(expected ? !strcmp(text, expected) : strlen(text) > 10000);
        if (i == 2)
            assert_non_null(strstr(f->last, "compile it again"));
        free(expected);
        expected = text;
        assert_true(find_file(f));
        FILE *file = fopen(f->file, "r");
        fseek(file, 0, SEEK_END);
        sizes[i] = ftell(file);
        fclose(file);
        assert_int_equal(sizes[i], sizes[0]);
        tern_pipeline_destroy(&p);
        tern_context_destroy(&ctx);
    }
    free(expected);
}

/* A pipe in the place of a plan: nobody reads it, and nobody waits for who might. */
static void a_pipe_is_no_plan(void **state)
{
    struct fixture *f = *state;
    char path[PATH_SIZE];
    for (int i = 0; i < 2; i++) {
        struct tern_context *ctx = open_context(f);
        struct tern_pipeline *p = model_load(ctx, model_path("sd1", path));
        alarm(60);
        assert_non_null(unet_plan(p));
        alarm(0);
        assert_int_equal(tern_error_status(ctx), TERN_OK);
        assert_true(find_file(f));
        if (i)
            assert_non_null(strstr(f->last, "not kept on disk"));
        else
            assert_int_equal(unlink(f->file) || mkfifo(f->file, 0600), 0);
        tern_pipeline_destroy(&p);
        tern_context_destroy(&ctx);
    }
}

/* What a job is told to need does not depend on whether its plans were compiled or found. Tiling leaves the most behind. */
static void a_plan_takes_the_same_memory_from_disk(void **state)
{
    char path[PATH_SIZE];
    size_t used[2];
    for (int i = 0; i < 2; i++) { /* compiled; loaded */
        struct tern_context *ctx = open_context(*state);
        struct tern_pipeline *p = model_load(ctx, model_path("sd1", path));
        assert_int_equal(tern_dispatch_prepare(ctx), TERN_OK);
        size_t before = tern_memory_used(ctx);
        const struct tern_stage stage = {.component = "vae_decoder", .size = {1, 512, 512}, .arena = 1};
        assert_non_null(tern_pipeline_plan(p, &stage));
        used[i] = tern_memory_used(ctx) - before;
        assert_int_equal(find_file(*state), true);
        tern_pipeline_destroy(&p);
        tern_context_destroy(&ctx);
    }
    assert_true(used[0] > 1 << 20);
    assert_int_equal(used[0], used[1]);
}

/* A folder that cannot be written costs nothing but a line for those who want to know. */
static void a_folder_that_cannot_be_written(void **state)
{
    char path[PATH_SIZE];
    struct fixture f = {.folder = "/proc/tern"};
    struct tern_context *ctx = open_context(&f);
    struct tern_pipeline *p = model_load(ctx, model_path("sd1", path));
    assert_non_null(unet_plan(p));
    assert_int_equal(f.warnings, 0);
    assert_non_null(strstr(f.last, "not kept on disk"));
    assert_int_equal(tern_error_status(ctx), TERN_OK);
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(checkpoints_share_plans, setup, teardown),
        cmocka_unit_test_setup_teardown(the_oldest_goes_first, setup, teardown),
        cmocka_unit_test_setup_teardown(a_plan_outlives_its_context, setup, teardown),
        cmocka_unit_test(plans_are_dropped_while_one_is_made),
        cmocka_unit_test_setup_teardown(another_plans_file_is_not_believed, setup, teardown),
        cmocka_unit_test_setup_teardown(plans_are_found_on_disk, setup, teardown),
        cmocka_unit_test_setup_teardown(a_pipe_is_no_plan, setup, teardown),
        cmocka_unit_test_setup_teardown(a_plan_takes_the_same_memory_from_disk, setup, teardown),
        cmocka_unit_test(a_folder_that_cannot_be_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
