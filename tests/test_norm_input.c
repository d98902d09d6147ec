/* Group norms in front of convolutions (tern_pre): the bits of both by themselves, plans that have them, plans on disk. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <tern/graph.h>
#include <tern/ops.h>

#include "backends/cpu/cpu.h"
#include "conformance/guard.h"
#include "kernel_help.h"
#include "plan_help.h"
#include "plan_use.h"
#include "support.h"

#define CONV "conv2d_bf16_igemm"

static bool skip_without_views(struct tern_context **ctx)
{
    if (cpu_level(*ctx)->bf16.dot.past_l1)
        return false;
    print_message("not run: no kernel of the level %s reads a norm\n", (*ctx)->device->level);
    tern_context_destroy(ctx);
    skip();
    return true;
}

/* n pictures of c channels in g groups, h x w, to o; filters of k x k. */
struct picture {
    int64_t n, c, g, h, w, o, k;
    bool silu, weight, bias;
    enum tern_dtype dtype; /* of the norm's weight and bias */
};

/* Views of one copy and of one for each column, pictures of more than a block of sums, bands of rows and of pictures by little L2. */
static const struct picture pictures[] = {
    {1, 32, 32, 16, 16, 20, 3, true, true, true, TERN_F32},    {2, 64, 8, 32, 32, 33, 3, true, true, true, TERN_BF16},
    {3, 96, 3, 8, 8, 40, 3, true, true, true, TERN_F16},       {2, 64, 1, 24, 24, 16, 3, false, true, true, TERN_F32},
    {1, 352, 32, 16, 48, 16, 3, true, false, false, TERN_F32}, {2, 64, 16, 12, 20, 8, 5, false, false, true, TERN_BF16},
    {2, 160, 32, 4, 4, 70, 3, true, true, false, TERN_F32},    {1, 64, 2, 34, 16, 16, 3, true, true, true, TERN_F32},
};

static void the_same_bits(void **state)
{
    struct tern_guard guard;
    struct tern_context *ctx = support_guarded(&guard, 2);
    if (skip_without_views(&ctx))
        return;
    struct cpu_device *device = cpu_device_of(ctx);
    const size_t l2[] = {256, 16384, device->l2};
    for (size_t i = 0; i < 3 * sizeof(pictures) / sizeof(*pictures); i++) {
        const struct picture *p = &pictures[i / 3];
        device->l2 = l2[i % 3];
        tern_scope_begin(ctx);
        tern_tensor *x =
            tern_contiguous(support_noise(ctx, 1, 4, (const int64_t[]){p->n, p->c, p->h, p->w}, 3, TERN_BF16), TERN_CHANNELS_LAST);
        tern_tensor *k = support_noise(ctx, 2, 4, (const int64_t[]){p->o, p->c, p->k, p->k}, 1, TERN_F16);
        tern_tensor *bias = support_noise(ctx, 3, 1, &p->o, 1, TERN_F32);
        tern_tensor *scale = p->weight ? support_noise(ctx, 4, 1, &p->c, 1, p->dtype) : NULL;
        tern_tensor *offset = p->bias ? support_noise(ctx, 5, 1, &p->c, 1, p->dtype) : NULL;
        struct tern_op_desc norm = {.op = TERN_OP_group_norm, .n_in = 3, .out = x->meta};
        norm.attrs.group_norm.num_groups = p->g;
        norm.attrs.group_norm.eps = 1e-5;
        if (p->silu)
            kernel_post(&norm, TERN_OP_silu, -1);
        tern_tensor *normed = kernel_run(ctx, &norm, (tern_tensor *[]){x, scale, offset}, "group_norm_float");
        struct tern_op_desc d = {.op = TERN_OP_conv2d, .n_in = 3};
        d.attrs.conv2d = (struct tern_conv2d_attrs){.stride = {1, 1}, .padding = {p->k / 2, p->k / 2}, .dilation = {1, 1}, .groups = 1};
        d.out =
            tern_contiguous(
                tern_tensor_empty(ctx,
                                  &(struct tern_meta){TERN_BF16, 4, {p->n, p->o, p->h, p->w}, {p->o * p->h * p->w, p->h * p->w, p->w, 1}}),
                TERN_CHANNELS_LAST)
                ->meta;
        struct tern_op_desc with = d;
        tern_tensor *y = kernel_run(ctx, &d, (tern_tensor *[]){normed, k, bias}, CONV);
        with.n_in = 5;
        with.pre = (struct tern_pre){p->g, p->silu, 3, 1e-5};
        tern_tensor *z = kernel_run(ctx, &with, (tern_tensor *[]){x, k, bias, scale, offset}, CONV);
        if (memcmp(tern_tensor_host(y), tern_tensor_host(z), (size_t)tern_meta_numel(&y->meta) * 2))
            fail_msg("row %d, L2 of %d: other bits", (int)(i / 3), (int)device->l2);
        tern_scope_end(ctx, NULL);
    }
    device->l2 = l2[2];
    tern_context_destroy(&ctx);
    assert_int_equal(tern_guard_damage(&guard), 0);
}

/* Two convolutions behind norms: of one that another reads, too, and of its own. */
static enum tern_status build(void *user, tern_tensor *const *in, tern_tensor **out)
{
    tern_tensor *shared = tern_group_norm(in[0], 4, in[3], in[4], 1e-5);
    tern_tensor *a = tern_conv2d(tern_silu(shared), in[1], in[2], .padding_hw = {0, 1});
    tern_tensor *own = tern_silu(tern_group_norm(a, 4, in[3], in[4], 1e-6));
    out[0] = tern_add(tern_conv2d(own, in[1], in[2], .padding_hw = {0, 1}), tern_silu(shared));
    return out[0] ? TERN_OK : TERN_E_INVALID;
}

static int norms_in_front(const struct tern_plan *p)
{
    int n = 0;
    for (int i = 0; i < p->graph->n_nodes; i++)
        n += !p->graph->nodes[i].dead && p->graph->nodes[i].desc.pre.num_groups > 0;
    return n;
}

static tern_tensor *run_plan(struct tern_context *ctx, struct tern_plan *plan, tern_tensor *const *in)
{
    tern_tensor *y = NULL;
    struct tern_binding *b = tern_plan_bind(plan, NULL);
    if (!b || tern_plan_run(b, in, &y))
        fail_msg("%s", tern_error(ctx));
    tern_binding_unref(&b);
    return y;
}

/* A plan has the norm that nothing else reads, computes the bits of one without the pass, and is the same from a file, of which no byte
 * that is another does harm. */
static void plans(void **state)
{
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = 2});
    assert_non_null(ctx);
    if (skip_without_views(&ctx))
        return;
    const struct tern_graph_input inputs[] = {{"x", TERN_BF16, 4, {1, 32, 4, 4}},
                                              {"k", TERN_BF16, 4, {32, 32, 1, 3}},
                                              {"bias", TERN_F32, 1, {32}},
                                              {"scale", TERN_F32, 1, {32}},
                                              {"offset", TERN_F32, 1, {32}}};
    tern_scope_begin(ctx);
    tern_tensor *in[5];
    for (int i = 0; i < 5; i++)
        in[i] = support_noise(ctx, i + 1, inputs[i].ndim, inputs[i].shape, 1, inputs[i].dtype);
    struct tern_graph *graph = tern_graph_trace(ctx, build, NULL, NULL, inputs, 5, 1);
    struct tern_plan *with = tern_plan_compile(graph, NULL),
                     *without = tern_plan_compile(graph, &(struct tern_plan_params){.without = "pre"});
    assert_true(with && without);
    assert_int_equal(norms_in_front(with), 1);
    assert_int_equal(norms_in_front(without), 0);
    tern_tensor *y = run_plan(ctx, with, in);
    const size_t bytes = (size_t)tern_meta_numel(&y->meta) * 2;
    assert_memory_equal(tern_tensor_host(run_plan(ctx, without, in)), tern_tensor_host(y), bytes);
    struct plan_folder f = plan_folder_open();
    assert_int_equal(tern_plan_save(with, f.path), TERN_OK);
    struct tern_plan *read = tern_plan_load(ctx, f.path);
    assert_non_null(read);
    assert_int_equal(norms_in_front(read), 1);
    assert_memory_equal(tern_tensor_host(run_plan(ctx, read, in)), tern_tensor_host(y), bytes);
    tern_plan_unref(&read);
    size_t size;
    int ran = 0;
    uint8_t *data = plan_bytes(f.path, &size), *other = malloc(size);
    for (size_t i = 0; i < size; i++) {
        memcpy(other, data, size);
        other[i] = i % 2 ? (uint8_t)~other[i] : (uint8_t)(other[i] + 1);
        plan_seal(other, size);
        plan_write(f.path, other, size);
        struct tern_plan *plan = tern_plan_load(ctx, f.path);
        ran += plan && plan_use(plan);
        tern_plan_unref(&plan);
        tern_error_clear(ctx);
    }
    assert_true(ran > 0);
    free(other);
    free(data);
    plan_folder_close(&f);
    tern_scope_end(ctx, NULL);
    tern_plan_unref(&with);
    tern_plan_unref(&without);
    tern_graph_destroy(&graph);
    tern_context_destroy(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_same_bits), cmocka_unit_test(plans)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
