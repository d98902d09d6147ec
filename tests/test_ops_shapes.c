/* Shape rules under any attributes and sizes: they refuse or complete, and never overflow (run it under UBSan). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <tern/context.h>

#include "ops/op.h"

#define TRIES 16000

static uint64_t random_state;

static uint64_t draw(uint64_t n)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (random_state >> 33) % n;
}

/* Tame ones come first. */
static int64_t draw_integer(bool tame)
{
    static const int64_t values[] = {1, 1, 1, 0, 2, 0, 2, 3, 4, 8, -1, -2, INT32_MAX, (int64_t)INT32_MAX + 1, INT64_MAX, INT64_MIN};
    return values[draw(tame ? 5 : sizeof(values) / sizeof(*values))];
}

static double draw_number(void)
{
    static const double values[] = {0, 0, 1, 1, 2, 3, -1, 0.5, 1.5, -0.25, 1e-300, 1e300, -1e300, 0x1p63, 4e9, NAN, INFINITY, -INFINITY};
    return values[draw(sizeof(values) / sizeof(*values))];
}

/* Sizes that often fit together, and huge ones that a broadcast view can have. */
static struct tern_meta draw_meta(enum tern_dtype dtype)
{
    static const int64_t sizes[] = {0, 1, 1, 2, 2, 2, 3, 4, 4, 4, 8, 8, (int64_t)1 << 31, (int64_t)1 << 40, (int64_t)1 << 57};
    struct tern_meta m;
    do {
        m = (struct tern_meta){.dtype = draw(8) ? dtype : (enum tern_dtype)draw(TERN_DTYPE_COUNT), .ndim = draw(3) ? 4 : (int)draw(9)};
        int most = draw(4) ? 12 : 15;
        for (int i = 0; i < m.ndim; i++)
            m.shape[i] = sizes[draw((uint64_t)most)];
    } while (!tern_shape_valid(m.ndim, m.shape, NULL));
    tern_meta_contiguous(&m);
    return m;
}

/* Of `bits` there are two that fit. */
static int64_t draw_attribute(const char *name, bool tame)
{
    return !strcmp(name, "bits") && draw(2) ? draw(2) ? 4 : 8 : draw_integer(tame);
}

/* A weight of i8 with a scale for each of its rows: else next to nothing would fit. */
static void draw_quantized(struct tern_op_desc *d)
{
    d->in[1].dtype = TERN_I8;
    d->in[2] = (struct tern_meta){.dtype = TERN_F32, .ndim = 1, .shape = {d->in[1].shape[0]}};
    tern_meta_contiguous(&d->in[2]);
    d->present[3] = false;
}

/* Words as many as that matrix has: likewise. */
static void draw_packed(struct tern_op_desc *d)
{
    struct tern_unpack_weight_attrs *p = &d->attrs.unpack_weight;
    d->in[0] = (struct tern_meta){.dtype = TERN_I32, .ndim = 2, .shape = {(int64_t)draw(3), (int64_t)draw(20)}};
    tern_meta_contiguous(&d->in[0]);
    p->shape_n = 2;
    p->shape[0] = d->in[0].shape[0];
    p->shape[1] = (int64_t)draw(80);
}

static struct tern_op_desc draw_desc(enum tern_op op, const struct tern_op_info *info)
{
    struct tern_op_desc d;
    memset(&d, 0, sizeof(d));
    d.op = op;
    d.n_in = info->max_inputs == TERN_MAX_INPUTS ? 1 + (int)draw(TERN_MAX_INPUTS) : info->max_inputs;
    enum tern_dtype dtype = draw(4) ? TERN_F32 : (enum tern_dtype)draw(TERN_DTYPE_COUNT);
    struct tern_meta first = draw_meta(dtype);
    bool tame = draw(2);
    for (int i = 0; i < d.n_in; i++) {
        d.present[i] = i < info->min_inputs || draw(3) == 0;
        if (d.present[i])
            d.in[i] = i && draw(2) ? d.in[0] : i ? draw_meta(dtype) : first;
    }
    if (!strncmp(info->name, "quantized", 9) && draw(2))
        draw_quantized(&d);
    for (int i = 0; i < info->n_attrs; i++)
        for (int k = 0; k < info->attrs[i].count; k++) {
            char *to = (char *)&d.attrs + info->attrs[i].offset;
            if (info->attrs[i].kind == TERN_ATTR_FLOAT)
                ((double *)(void *)to)[k] = draw_number();
            else
                ((int64_t *)(void *)to)[k] = draw_attribute(info->attrs[i].name, tame);
        }
    if (op == TERN_OP_unpack_weight && draw(2))
        draw_packed(&d);
    return d;
}

/* Out is valid and contiguous, and a second pass changes nothing. */
static void check_accepted(struct tern_context *ctx, const struct tern_op_desc *d, const struct tern_op_info *info)
{
    struct tern_op_desc again = *d;
    struct tern_meta view;
    int64_t offset;
    assert_true(tern_shape_valid(d->out.ndim, d->out.shape, NULL));
    assert_in_range(d->out.dtype, 0, TERN_DTYPE_COUNT - 1);
    assert_true(tern_meta_is_dense(&d->out) || tern_meta_numel(&d->out) == 0);
    if (info->shape(ctx, &again))
        print_error("%s\n", tern_error(ctx));
    assert_int_equal(tern_error_status(ctx), TERN_OK);
    assert_memory_equal(&again, d, sizeof(again));
    if (tern_op_view(d, &view, &offset)) {
        assert_true(tern_meta_same_shape(&view, &d->out));
        if (tern_meta_numel(&view))
            assert_in_range(offset + tern_meta_span(&view), 1, tern_meta_span(&d->in[0]));
    }
}

static void test_any_description(void **state)
{
    struct tern_context *ctx = tern_context_create(NULL);
    assert_non_null(ctx);
    for (int op = 0; op < TERN_OP_COUNT; op++) {
        struct tern_op_info info = tern_op_get((enum tern_op)op);
        int accepted = 0;
        random_state = (uint64_t)op + 1;
        for (int i = 0; i < TRIES; i++) {
            struct tern_op_desc d = draw_desc((enum tern_op)op, &info);
            enum tern_status st = info.shape(ctx, &d);
            assert_int_equal(st, tern_error_status(ctx));
            if (st) {
                assert_memory_equal(tern_error(ctx), info.name, strlen(info.name)); /* messages begin with the op */
                tern_error_clear(ctx);
            } else {
                accepted++;
                check_accepted(ctx, &d, &info);
            }
        }
        if (!accepted)
            print_error("%s: all %d descriptions were refused\n", info.name, TRIES);
        assert_true(accepted > 0);
    }
    tern_context_destroy(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_any_description)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
