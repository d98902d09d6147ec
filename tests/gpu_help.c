/* What the tests of backends for GPUs share. */
#include <dlfcn.h>
#include <glob.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <tern/conformance.h>
#include <tern/ops.h>

#include "core/context.h"
#include "core/tensor.h"
#include "gpu_help.h"
#include "model_help.h"
#include "support.h"

int gpu_make_folder(char folder[GPU_FOLDER], const char *name)
{
    snprintf(folder, GPU_FOLDER, "/tmp/tern-test-%s-XXXXXX", name);
    return mkdtemp(folder) ? 0 : -1;
}

int gpu_remove_folder(const char *folder)
{
    char command[GPU_FOLDER + 16];
    snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    return system(command);
}

void *gpu_open_standin(const char *told, const char *get, const char *read)
{
    const char *path = getenv(told);
    void *library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    void *(*standin)(void) = NULL;
    if (library)
        *(void **)(void *)&standin = dlsym(library, get);
    if (standin)
        setenv(read, path, 1);
    return standin ? standin() : NULL;
}

void gpu_largest_buffer_is_made(struct tern_context *ctx, size_t allocation)
{
    size_t most = ctx->device->caps.max_buffer;
    assert_true(most > allocation - 1024 && most <= allocation);
    struct tern_buffer *b = tern_buffer_create(ctx->device, most);
    if (!b)
        fail_msg("%s", tern_error(ctx));
    tern_buffer_unref(&b);
    assert_null(tern_buffer_create(ctx->device, most + 1));
    support_error(ctx, TERN_E_NO_MEMORY, "the device allows");
}

struct tern_context *gpu_open(const char *name)
{
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.device = name, .threads = 1});
    if (!ctx && strcmp(name, "cpu") != 0) {
        print_message("%s\n", tern_create_error());
        skip();
    }
    if (!ctx)
        fail_msg("%s", tern_create_error());
    return ctx;
}

int gpu_ops_agree(struct tern_context *ctx, const char *device, int first, int one_in)
{
    struct tern_conformance *c =
        tern_conformance_create(ctx, &(const struct tern_conformance_params){.device = device, .kernel = "chosen"});
    int failed = 0, passed = 0;
    if (!c)
        fail_msg("%s", tern_error(ctx));
    for (int i = first; i < tern_conformance_facts(c).cases; i += one_in) { /* the stage of ops comes first */
        struct tern_conformance_outcome out;
        assert_int_equal(tern_conformance_run(c, i, &out), TERN_OK);
        passed += out.result == TERN_CONFORMANCE_PASSED;
        if (out.result == TERN_CONFORMANCE_FAILED && ++failed < 20)
            print_error("%s: %s\n", tern_conformance_get(c, i).name, out.message);
    }
    assert_int_equal(failed, 0);
    tern_conformance_destroy(&c);
    return passed;
}

void gpu_sines_agree(struct tern_context *ctx)
{
    enum { COUNT = 8192 };
    float x[COUNT], found[2][COUNT];
    for (int i = 0; i < COUNT; i++) { /* all exponents, both signs */
        uint32_t bits = (uint32_t)i * 0x9e3779b1u ^ (uint32_t)i >> 3;
        memcpy(&x[i], &bits, sizeof(bits));
    }
    tern_scope_begin(ctx);
    tern_tensor *in = tern_tensor_create(ctx, TERN_F32, 1, (const int64_t[]){COUNT}, x);
    assert_int_equal(tern_tensor_read(tern_sin(in), TERN_F32, found[0], sizeof(found[0])), TERN_OK);
    assert_int_equal(tern_tensor_read(tern_cos(in), TERN_F32, found[1], sizeof(found[1])), TERN_OK);
    tern_scope_end(ctx, NULL);
    for (int i = 0; i < 2 * COUNT; i++) {
        double of = x[i % COUNT], expected = i < COUNT ? sin(of) : cos(of), f = found[i / COUNT][i % COUNT];
        if (isnan(expected) ? !isnan(f) : !(fabs(f - expected) <= 3e-7))
            fail_msg("%s(%.9g) is %.9g, expected %.9g", i < COUNT ? "sin" : "cos", of, f, expected);
    }
}

void gpu_quotients_agree(struct tern_context *ctx)
{
    enum { COUNT = 8192 };
    float x[COUNT], found[COUNT];
    for (int i = 0; i < COUNT; i++) { /* all fractions, exponents from -16 to 15 */
        uint32_t bits = (uint32_t)i * 0x9e3779b1u ^ (uint32_t)i >> 3;
        bits = (bits & 0x007fffffu) | (111 + bits % 32) << 23;
        memcpy(&x[i], &bits, sizeof(bits));
    }
    tern_scope_begin(ctx);
    tern_tensor *scale = tern_quantize_scale(tern_tensor_create(ctx, TERN_F32, 2, (const int64_t[]){COUNT, 1}, x));
    if (tern_tensor_read(scale, TERN_F32, found, sizeof(found)))
        fail_msg("%s", tern_error(ctx));
    tern_scope_end(ctx, NULL);
    for (int i = 0; i < COUNT; i++)
        if (found[i] != x[i] / 127)
            fail_msg("%.9g / 127 is %.9g, expected %.9g", (double)x[i], (double)found[i], (double)(x[i] / 127));
}

struct tern_image *gpu_paint(struct tern_context *ctx, const char *prompt)
{
    char path[PATH_SIZE];
    struct tern_pipeline *p = model_load(ctx, model_path("demo", path));
    const struct tern_txt2img_params q = {.prompt = prompt, .width = 128, .height = 64, .steps = 2, .seed = 7};
    struct tern_image *image = tern_txt2img(p, &q);
    if (!image)
        fail_msg("%s", tern_error(ctx));
    tern_pipeline_destroy(&p);
    return image;
}

void gpu_compare(const struct tern_image *a, const struct tern_image *b)
{
    int n = 3 * tern_image_width(a) * tern_image_height(a);
    for (int i = 0; i < n; i++)
        assert_true(abs(tern_image_data(a)[i] - tern_image_data(b)[i]) <= 1);
}

void gpu_pictures_agree(struct tern_context *ctx)
{
    static const char *const prompts[] = {"a red circle", "一艘蓝色的船在海上，日落"};
    struct tern_context *cpu = support_context();
    for (int i = 0; i < 2; i++) {
        struct tern_image *expected = gpu_paint(cpu, prompts[i]), *found = gpu_paint(ctx, prompts[i]);
        gpu_compare(expected, found);
        tern_image_destroy(&expected);
        tern_image_destroy(&found);
    }
    tern_context_destroy(&cpu);
}

/* ---- a plan ---- */

/* A convolution, a norm, a product with weights that lie in the host's memory. */
static enum tern_status block(void *user, tern_tensor *const *in, tern_tensor **out)
{
    const struct tern_weights *w = user;
    tern_tensor *h = tern_conv2d(in[0], tern_weights_get(w, "conv"), NULL, .padding = 1);
    h = tern_silu(tern_group_norm(h, 2, NULL, NULL, 1e-5));
    out[0] = tern_linear(h, tern_weights_get(w, "linear"), NULL);
    return TERN_OK;
}

static void fill(float *v, int n)
{
    for (int i = 0; i < n; i++)
        v[i] = (float)(i * 37 % 101) / 50 - 1;
}

static struct tern_weights *host_weights(struct tern_context *ctx, float *memory)
{
    struct tern_weights *w = tern_weights_create(ctx);
    tern_tensor *conv = tern_tensor_wrap(ctx, TERN_F32, 4, (const int64_t[]){4, 3, 3, 3}, memory, NULL, NULL);
    tern_tensor *linear = tern_tensor_wrap(ctx, TERN_F32, 2, (const int64_t[]){5, 8}, memory + 108, NULL, NULL);
    assert_int_equal(tern_weights_add(w, "conv", conv), TERN_OK);
    assert_int_equal(tern_weights_add(w, "linear", linear), TERN_OK);
    tern_tensor_unref(&conv);
    tern_tensor_unref(&linear);
    return w;
}

void gpu_run_plan(struct tern_context *ctx, float *values, void (*watch)(int run, bool over))
{
    float memory[148], picture[3 * 6 * 8];
    const struct tern_graph_input input = {"x", TERN_F32, 4, {1, 3, 6, 8}};
    fill(memory, 148);
    fill(picture, 3 * 6 * 8);
    struct tern_weights *w = host_weights(ctx, memory);
    struct tern_graph *g = tern_graph_trace(ctx, block, w, w, &input, 1, 1);
    struct tern_plan *plan = tern_plan_compile(g, NULL);
    size_t told = plan ? tern_plan_bind_bytes(plan, w) : 0, before = tern_memory_used(ctx);
    struct tern_binding *b = tern_plan_bind(plan, w);
    if (!b)
        fail_msg("%s", tern_error(ctx));
    assert_true(tern_memory_used(ctx) - before <= told);
    tern_scope_begin(ctx);
    tern_tensor *in = tern_tensor_create(ctx, TERN_F32, 4, input.shape, picture), *out = NULL;
    uint64_t allocations = 0;
    for (int i = 0; i < 3; i++) {
        if (watch)
            watch(i, false);
        if (tern_plan_run(b, &in, &out))
            fail_msg("%s", tern_error(ctx));
        if (watch)
            watch(i, true);
        assert_true(i < 2 || tern_memory_allocations(ctx) == allocations);
        allocations = tern_memory_allocations(ctx);
    }
    assert_int_equal(tern_tensor_read(out, TERN_F32, values, GPU_PLAN_VALUES * sizeof(float)), TERN_OK);
    tern_scope_end(ctx, NULL);
    tern_binding_unref(&b);
    tern_plan_unref(&plan);
    tern_graph_destroy(&g);
    tern_weights_unref(&w);
}

void gpu_plan_agrees(struct tern_context *ctx, void (*watch)(int run, bool over))
{
    struct tern_context *cpu = support_context();
    float expected[GPU_PLAN_VALUES], found[GPU_PLAN_VALUES];
    gpu_run_plan(cpu, expected, NULL);
    gpu_run_plan(ctx, found, watch);
    assert_true(support_nmse(found, expected, GPU_PLAN_VALUES) < 1e-11);
    tern_context_destroy(&cpu);
}

/* ---- the cache folder ---- */

int gpu_warnings;

void gpu_count_warnings(enum tern_log_level level, const char *text, void *user)
{
    gpu_warnings += level == TERN_LOG_WARN && strstr(text, "again") != NULL;
}

int gpu_damage_files(const char *pattern, int every, bool cut)
{
    glob_t files;
    int damaged = 0;
    assert_int_equal(glob(pattern, 0, NULL, &files), 0);
    for (size_t i = 0; i < files.gl_pathc; i += (size_t)every, damaged++) {
        FILE *f = fopen(files.gl_pathv[i], cut ? "wb" : "r+b");
        assert_non_null(f);
        if (!cut)
            fseek(f, 30, SEEK_SET);
        fputc('?', f);
        fclose(f);
    }
    globfree(&files);
    return damaged;
}

void gpu_cache_is_checked(const char *device, const char *cache)
{
    char pattern[300];
    struct tern_image *expected = NULL;
    snprintf(pattern, sizeof(pattern), "%s/%s/*.bin", cache, device);
    for (int what = 0; what < 4; what++) { /* new, whole, a byte changed, cut */
        int damaged = what > 1 ? gpu_damage_files(pattern, 10, what == 3) : 0;
        gpu_warnings = 0;
        struct tern_context *ctx = tern_context_create(
            &(const struct tern_context_params){.device = device, .threads = 2, .cache_dir = cache, .log = gpu_count_warnings});
        assert_non_null(ctx);
        struct tern_image *found = gpu_paint(ctx, "a star");
        if (expected)
            gpu_compare(expected, found);
        assert_true(what > 1 ? damaged > 2 && gpu_warnings > 0 && gpu_warnings <= damaged : gpu_warnings == 0);
        if (expected)
            tern_image_destroy(&found);
        else
            expected = found;
        tern_context_destroy(&ctx);
    }
    tern_image_destroy(&expected);
}

/* ---- what fails ---- */

bool gpu_compute(struct tern_context *ctx)
{
    float values[100] = {0};
    tern_tensor *x = ctx ? tern_tensor_create(ctx, TERN_F32, 1, (const int64_t[]){100}, values) : NULL;
    tern_tensor *y = x ? tern_exp(x) : NULL;
    bool ok = y && !tern_tensor_read(y, TERN_F32, values, sizeof(values)) && values[99] == 1;
    tern_tensor_unref(&x);
    tern_tensor_unref(&y);
    return ok;
}

int gpu_allocations_fail(const char *device, const char *cache, void (*check)(void))
{
    int faults = 0;
    for (long n = 1; n < 10000; n++, faults++) {
        struct support_allocator m = {.fail_at = n};
        const struct tern_context_params params = {.device = device, .threads = 1, .allocator = support_failing(&m), .cache_dir = cache};
        struct tern_context *ctx = tern_context_create(&params);
        bool ok = gpu_compute(ctx);
        assert_true(ok || !ctx || tern_error_status(ctx) == TERN_E_NO_MEMORY);
        tern_context_destroy(&ctx);
        assert_int_equal(m.live, 0);
        if (check)
            check();
        if (ok && m.count < n)
            break;
    }
    print_message("%d faults\n", faults);
    return faults;
}

void gpu_wrong_use_is_refused(const char *device, const char *cache)
{
    char text[80];
    struct tern_context_params params = {.device = text, .threads = 1, .budget = 1 << 20, .cache_dir = cache};
    snprintf(text, sizeof(text), "%s:99", device);
    assert_null(tern_context_create(&params));
    assert_non_null(strstr(tern_create_error(), "device 99 was asked for, there "));
    params.device = device;
    struct tern_context *ctx = tern_context_create(&params);
    assert_non_null(ctx);
    assert_null(tern_tensor_create(ctx, TERN_F32, 1, (const int64_t[]){1 << 20}, NULL));
    snprintf(text, sizeof(text), "memory budget of 1048576 bytes reached on device %s", device);
    support_error(ctx, TERN_E_BUDGET, text);
    tern_context_destroy(&ctx);
}

/* ---- weights that are moved ---- */

#define ROW 256
#define MOVED 8
static float moved[MOVED][ROW * ROW];

/* The sums of a weight's rows, which are whole numbers. */
static void check_sums(struct tern_context *ctx, tern_tensor *w, int number)
{
    float found[ROW], ones[ROW];
    for (int i = 0; i < ROW; i++)
        ones[i] = 1;
    tern_scope_begin(ctx);
    tern_tensor *y = tern_linear(tern_tensor_create(ctx, TERN_F32, 2, (const int64_t[]){1, ROW}, ones), w, NULL);
    assert_int_equal(tern_tensor_read(y, TERN_F32, found, sizeof(found)), TERN_OK);
    tern_scope_end(ctx, NULL);
    for (int i = 0; i < ROW; i++) {
        float expected = 0;
        for (int k = 0; k < ROW; k++)
            expected += moved[number][i * ROW + k];
        assert_true(found[i] == expected);
    }
}

/* Weights of 256 KiB, of which a share of 1.5 MiB holds five: others leave for a tensor of 1 MiB, and some come back. */
void gpu_weights_move(const char *device, const char *cache)
{
    const int64_t most = 1 << 18;
    struct tern_context *ctx =
        tern_context_create(&(struct tern_context_params){.device = device, .threads = 2, .device_budget = 3 << 19, .cache_dir = cache});
    tern_tensor *w[MOVED], *big = NULL;
    struct tern_buffer *at[MOVED];
    assert_non_null(ctx);
    for (int i = 0; i < MOVED; i++) {
        for (int k = 0; k < ROW * ROW; k++)
            moved[i][k] = (float)((k + i) % 7);
        w[i] = tern_tensor_wrap(ctx, TERN_F32, 2, (const int64_t[]){ROW, ROW}, moved[i], NULL, NULL);
    }
    for (int turn = 0; turn < 4; turn++) {
        const uint64_t before = ctx->device->moved;
        if (turn == 1)
            big = tern_tensor_create(ctx, TERN_F32, 1, &most, NULL);
        if (turn == 3) {
            tern_tensor_unref(&big);
            for (int i = 0; i < MOVED; i++)
                at[i] = w[i]->prepared->buffer;
            assert_int_equal(ctx->device->fns->weights_use(ctx->device, at, MOVED), TERN_OK);
        }
        assert_true(ctx->device->moved - before >= (turn % 2 ? 3 : 0));
        for (int i = 0; i < MOVED; i++)
            check_sums(ctx, w[i], i);
    }
    for (int i = 0; i < MOVED; i++)
        tern_tensor_unref(&w[i]);
    tern_context_destroy(&ctx);
}
