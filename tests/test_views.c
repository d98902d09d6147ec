/* Convolutions whose products read views of copied pictures (backends/cpu/views.h), in int8 and in bf16: bands of rows and of pictures,
 * rows of outputs that are multiples of sixteen and that are not. Against the reference. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>
#include <tern/ops.h>

#include "backends/cpu/cpu.h"
#include "conformance/guard.h"
#include "kernel_help.h"
#include "ops/dispatch.h"
#include "support.h"

/* n pictures of c channels to o; filters of kh x kw, oh x ow outputs. */
struct picture {
    int64_t n, c, o, kh, kw, oh, ow;
    int stride_h, stride_w, dilation, padding;
};

/* Filters of more taps than a product takes at once, strides, dilations, one picture or more, several parts of the depth; rows that go on
 * in the next one, and those of pictures with no multiple of sixteen outputs, which are gathered. The last ones have so few channels that
 * int8 makes rows of patches. */
static const struct picture pictures[] = {
    {1, 64, 40, 3, 3, 4, 16, 1, 1, 1, 1},  {2, 64, 33, 3, 3, 6, 32, 1, 1, 1, 1},   {2, 96, 70, 3, 3, 5, 48, 1, 1, 1, 1},
    {1, 64, 16, 5, 5, 4, 16, 1, 1, 1, 2},  {2, 1000, 96, 3, 3, 2, 16, 1, 1, 1, 1}, {1, 1300, 20, 3, 3, 3, 32, 1, 1, 1, 0},
    {1, 130, 90, 3, 3, 8, 64, 1, 1, 2, 2}, {2, 64, 64, 3, 3, 4, 16, 2, 2, 1, 1},   {1, 70, 50, 2, 4, 2, 64, 1, 1, 1, 0},
    {1, 64, 40, 1, 3, 6, 16, 1, 1, 1, 0},  {1, 64, 40, 3, 1, 10, 32, 1, 1, 1, 0},  {1, 64, 40, 1, 16, 4, 16, 1, 1, 1, 0},
    {1, 900, 40, 4, 4, 4, 16, 1, 1, 1, 0}, {5, 64, 33, 3, 3, 8, 8, 1, 1, 1, 1},    {2, 96, 40, 3, 3, 24, 24, 1, 1, 1, 1},
    {3, 704, 20, 3, 3, 4, 4, 1, 1, 1, 1},  {2, 64, 40, 3, 3, 16, 9, 1, 1, 2, 2},   {2, 64, 40, 3, 1, 8, 12, 1, 1, 1, 1},
    {1, 64, 40, 1, 1, 8, 8, 1, 1, 1, 1},   {2, 64, 33, 5, 2, 40, 2, 1, 1, 1, 1},   {2, 64, 33, 3, 3, 7, 7, 1, 1, 1, 1},
    {3, 64, 33, 3, 3, 9, 11, 2, 2, 1, 1},  {1, 64, 20, 3, 3, 34, 80, 1, 1, 1, 1},  {2, 352, 33, 3, 3, 6, 16, 1, 1, 1, 1},
    {2, 64, 33, 3, 3, 8, 8, 1, 2, 1, 1},   {1, 96, 40, 2, 3, 16, 12, 1, 3, 1, 2},  {1, 64, 33, 3, 3, 6, 16, 1, 2, 1, 1},
    {1, 64, 33, 3, 3, 10, 11, 2, 1, 1, 1}, {1, 64, 33, 3, 6, 8, 8, 1, 1, 1, 2},    {2, 4, 40, 3, 3, 6, 16, 1, 1, 1, 1},
    {2, 3, 33, 3, 3, 7, 9, 1, 1, 1, 1},    {1, 9, 70, 3, 3, 8, 12, 1, 1, 2, 2},    {2, 1, 5, 5, 5, 10, 11, 2, 1, 1, 2},
    {1, 21, 33, 3, 3, 5, 32, 1, 2, 1, 1},  {3, 8, 33, 2, 4, 20, 16, 1, 1, 3, 3},
};

/* With so little L2 that a band is a few rows, some, a picture or all: the kernel's result is that of the reference in f32, of values of
 * bf16. Of int8 the sums are the same, those of bf16 are of up to 14,400 products in f32. */
enum { BF16, INT8, WEIGHTS_ALONE, KINDS };
static const char *const kinds[] = {"bf16", "int8", "bf16 with weights of 8 bits"};
static const double most[] = {1e-11, 1e-12, 3e-5}; /* errors; weights of few bits become bf16, which those of the reference do not */

static void check(struct tern_context *ctx, const struct picture *p, int kind)
{
    const bool int8 = kind == INT8;
    struct cpu_device *device = cpu_device_of(ctx);
    const size_t own = device->l2, l2[] = {256, 4096, 16384, 65536, own};
    const int64_t h = (p->oh - 1) * p->stride_h + (p->kh - 1) * p->dilation + 1 - 2 * p->padding;
    const int64_t w = (p->ow - 1) * p->stride_w + (p->kw - 1) * p->dilation + 1 - 2 * p->padding;
    const int64_t pixels[] = {p->n, p->c, h, w}, weight[] = {p->o, p->c, p->kh, p->kw}, outputs[] = {p->n, p->o, p->oh, p->ow};
    tern_tensor *x = tern_contiguous(support_noise(ctx, 1, 4, pixels, 1, TERN_BF16), TERN_CHANNELS_LAST);
    tern_tensor *k = support_noise(ctx, 2, 4, weight, 1, TERN_BF16), *bias = support_noise(ctx, 3, 1, &p->o, 1, TERN_F32);
    tern_tensor *more = tern_contiguous(support_noise(ctx, 4, 4, outputs, 1, TERN_F32), TERN_CHANNELS_LAST);
    const struct tern_conv2d_params q = {.stride_hw = {p->stride_h, p->stride_w}, .padding = p->padding, .dilation = p->dilation};
    tern_tensor *wide = tern_cast(x, TERN_F32), *wide_k = tern_cast(k, TERN_F32);
    assert_int_equal(tern_dispatch_force(ctx, "reference"), TERN_OK);
    tern_tensor *y = int8                    ? tern_quantized_conv2d_p(wide, wide_k, NULL, bias, &q)
                     : kind == WEIGHTS_ALONE ? tern_weight_only_conv2d_p(x, k, bias, 8, &q)
                                             : tern_conv2d_p(wide, wide_k, bias, &q);
    if (kind == WEIGHTS_ALONE)
        y = tern_cast(y, TERN_F32);
    y = tern_silu(tern_add(y, more));
    assert_int_equal(tern_dispatch_force(ctx, NULL), TERN_OK);
    static const enum tern_op ops[] = {TERN_OP_conv2d, TERN_OP_quantized_conv2d, TERN_OP_weight_only_conv2d};
    static const char *const names[] = {"conv2d_bf16_igemm", "quantized_conv2d_i8_igemm", "weight_only_conv2d_bf16_igemm"};
    struct tern_op_desc d = {.op = ops[kind], .n_in = int8 ? 5 : 4};
    d.out = tern_contiguous(y, TERN_CHANNELS_LAST)->meta;
    d.attrs.conv2d = (struct tern_conv2d_attrs){
        .stride = {p->stride_h, p->stride_w}, .padding = {p->padding, p->padding}, .dilation = {p->dilation, p->dilation}, .groups = 1};
    if (kind == WEIGHTS_ALONE)
        d.attrs.weight_only_conv2d.bits = 8;
    kernel_post(&d, TERN_OP_add, d.n_in - 1);
    kernel_post(&d, TERN_OP_silu, -1);
    kernel_post(&d, TERN_OP_cast, -1);
    tern_tensor *const of_int8[] = {x, k, NULL, bias, more}, *const of_bf16[] = {x, k, bias, more};
    for (size_t i = 0; i < sizeof(l2) / sizeof(*l2); i++) {
        device->l2 = l2[i];
        tern_tensor *found = kernel_run(ctx, &d, int8 ? of_int8 : of_bf16, names[kind]);
        const double e = support_tensor_nmse(found, y);
        if (!(e <= most[kind]))
            fail_msg("%s, row %d, L2 of %d: NMSE %g", kinds[kind], (int)(p - pictures), (int)l2[i], e);
    }
    device->l2 = own;
}

static void check_all(struct tern_context *ctx, int kind)
{
    for (size_t k = 0; k < sizeof(pictures) / sizeof(*pictures); k++) {
        tern_scope_begin(ctx);
        check(ctx, &pictures[k], kind);
        tern_scope_end(ctx, NULL);
    }
}

static void in_int8(void **state)
{
    struct tern_guard guard;
    struct tern_context *ctx = support_guarded(&guard, 2);
    check_all(ctx, INT8);
    tern_context_destroy(&ctx);
    assert_int_equal(tern_guard_damage(&guard), 0);
}

static void in_bf16(void **state)
{
    struct tern_guard guard;
    struct tern_context *ctx = support_guarded(&guard, 2);
    const bool can = cpu_level(ctx)->bf16.dot.step > 0;
    for (int kind = 0; can && kind < KINDS; kind++)
        if (kind != INT8)
            check_all(ctx, kind);
    if (!can)
        print_message("not run: the level %s has no instructions for bf16\n", ctx->device->level);
    tern_context_destroy(&ctx);
    assert_int_equal(tern_guard_damage(&guard), 0);
    if (!can)
        skip();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(in_int8), cmocka_unit_test(in_bf16)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
