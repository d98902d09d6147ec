/* Packed weights: those of a mapped file, parts of which are read into the memory of others, are the ones of memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "backends/cpu/cpu.h"
#include "backends/cpu/gemm_dot.h"
#include "core/context.h"
#include "core/files.h"
#include "core/hal.h"
#include "ops/reference.h"
#include "support.h"

static uint32_t seed = 1;
static int draw(int from, int to)
{
    seed = seed * 1664525u + 1013904223u;
    return from + (int)(seed >> 8) % (to - from + 1);
}

struct weight {
    enum tern_op op;
    int64_t n, c, side; /* side 0: of a linear */
    enum tern_dtype dtype;
};

static struct tern_op_desc desc_of(const struct weight *w, enum tern_dtype x)
{
    const bool gated = w->op == TERN_OP_linear_geglu || w->op == TERN_OP_quantized_linear_geglu;
    struct tern_op_desc d = {.op = w->op, .n_in = 2, .present = {true, true}, .constant = {false, true}};
    if (w->side) {
        d.in[0] = tern_meta_make(x, 4, (const int64_t[]){2, w->c, 9, 11});
        d.out = tern_meta_make(x, 4, (const int64_t[]){2, w->n, 9, 11});
        tern_meta_channels_last(&d.in[0]);
        tern_meta_channels_last(&d.out);
        d.in[1] = tern_meta_make(w->dtype, 4, (const int64_t[]){w->n, w->c, w->side, w->side});
        if (w->op == TERN_OP_conv2d)
            d.attrs.conv2d =
                (struct tern_conv2d_attrs){.stride = {1, 1}, .padding = {w->side / 2, w->side / 2}, .dilation = {1, 1}, .groups = 1};
        else
            d.attrs.quantized_conv2d = (struct tern_quantized_conv2d_attrs){
                .stride = {1, 1}, .padding = {w->side / 2, w->side / 2}, .dilation = {1, 1}, .groups = 1, .winograd = w->side == 3};
    } else {
        d.in[0] = tern_meta_make(x, 2, (const int64_t[]){70, w->c});
        d.in[1] = tern_meta_make(w->dtype, 2, (const int64_t[]){w->n, w->c});
        d.out = tern_meta_make(x, 2, (const int64_t[]){70, gated ? w->n / 2 : w->n});
    }
    return d;
}

#define BIG (32 << 20)  /* bytes: the system maps up to 2 MiB of its cache at once */
#define DRAWN (1 << 20) /* values */

struct source {
    char path[64];
    struct tern_mapping *m;
    uint8_t *heap;
    size_t size, offset;
};

/* A file with something before and behind the weight, and the weight in memory. */
static struct source source_of(struct tern_context *ctx, const struct weight *w)
{
    const int64_t n = w->n * w->c * (w->side ? w->side * w->side : 1);
    struct source s = {"/tmp/tern-test-pack-XXXXXX", NULL, NULL, (size_t)n * tern_dtype_size(w->dtype), 4096 + 64};
    s.heap = malloc(s.size);
    for (int64_t i = 0; i < n && i < DRAWN; i++)
        tern_store(w->dtype, s.heap, i, w->dtype == TERN_I8 ? draw(-127, 127) : draw(-999, 999) / 512.0);
    for (size_t done = DRAWN * tern_dtype_size(w->dtype), more; done < s.size; done += more) { /* the same again */
        more = done < s.size - done ? done : s.size - done;
        memcpy(s.heap + done, s.heap, more);
    }
    const int fd = mkstemp(s.path);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "wb");
    assert_non_null(f);
    for (size_t i = 0; i < s.offset; i++)
        fputc((int)(i % 251), f);
    assert_int_equal(fwrite(s.heap, 1, s.size, f), s.size);
    fputs("behind it", f);
    assert_int_equal(fclose(f), 0);
    s.m = tern_map_file(ctx, s.path);
    unlink(s.path);
    assert_non_null(s.m);
    return s;
}

static void check_kernel(struct tern_context *ctx, const struct tern_kernel *k, const struct tern_op_desc *d, const struct source *s)
{
    const size_t size = k->packed_size(ctx, d), room = (size + 63) / 64 * 64;
    uint8_t *wanted = aligned_alloc(64, room), *other = aligned_alloc(64, room), *found = aligned_alloc(64, room);
    memset(wanted, 0x55, size);
    memset(other, 0xaa, size);
    memset(found, 0x77, size);
    assert_int_equal(k->pack(ctx, d, s->heap, wanted), TERN_OK);
    assert_int_equal(k->pack(ctx, d, s->heap, other), TERN_OK);
    assert_int_equal(k->pack(ctx, d, s->m->data + s->offset, found), TERN_OK);
    for (size_t i = 0; i < size; i++)
        if (wanted[i] == other[i] && wanted[i] != found[i]) /* else nothing lies there */
            fail_msg("%s: %d x %d, side %d, %s, from a file, is packed otherwise", k->name, (int)d->in[1].shape[0], (int)d->in[1].shape[1],
                     d->in[1].ndim > 2 ? (int)d->in[1].shape[2] : 0, tern_dtype_name(d->in[1].dtype));
    free(wanted);
    free(other);
    free(found);
}

/* The kernels that pack such a weight; how many. */
static int check(struct tern_context *ctx, const struct weight *w)
{
    static const enum tern_dtype dtypes[] = {TERN_F32, TERN_BF16};
    struct source s = source_of(ctx, w);
    int n = 0;
    for (int x = 0; x < 2; x++) {
        const struct tern_op_desc d = desc_of(w, dtypes[x]);
        for (const struct tern_kernel *const *k = ctx->device->kernels; *k; k++)
            if ((*k)->op == w->op && (*k)->pack && (*k)->pack_input == 1 && (*k)->supports(ctx->device, &d)) {
                check_kernel(ctx, *k, &d, &s);
                n++;
            }
    }
    tern_mapping_unref(&s.m);
    free(s.heap);
    return n;
}

/* One panel and several, each with a rest; depths that are odd, and several blocks of what is converted at once. */
static void files_are_packed_as_memory(void **state)
{
    static const struct {
        enum tern_op op;
        int64_t side;
        bool bytes; /* the weight may be of them */
    } ops[] = {{TERN_OP_linear, 0, false},          {TERN_OP_linear_geglu, 0, false},    {TERN_OP_conv2d, 1, false},
               {TERN_OP_conv2d, 3, false},          {TERN_OP_quantized_linear, 0, true}, {TERN_OP_quantized_linear_geglu, 0, true},
               {TERN_OP_quantized_conv2d, 1, true}, {TERN_OP_quantized_conv2d, 3, true}};
    static const int64_t sizes[][2] = {{2, 1}, {18, 70}, {64, 257}, {140, 515}};
    static const enum tern_dtype dtypes[] = {TERN_F32, TERN_F16, TERN_BF16, TERN_I8};
    const struct tern_context_params params = {.device = "cpu", .threads = 3};
    struct tern_context *ctx = tern_context_create(&params);
    assert_non_null(ctx);
    int kernels = 0;
    for (size_t i = 0; i < sizeof(ops) / sizeof(*ops); i++)
        for (size_t k = 0; k < sizeof(sizes) / sizeof(*sizes); k++)
            for (int t = 0; t < 3 + ops[i].bytes; t++)
                kernels += check(ctx, &(struct weight){ops[i].op, sizes[k][0], sizes[k][1], ops[i].side, dtypes[t]});
    assert_true(kernels >= 64);
    tern_context_destroy(&ctx);
}

/* Only the last panels of each thread find no room: of 128 with three threads a tenth, where they are a quarter of what they are made of. */
static void most_of_a_file_is_not_mapped(void **state)
{
    const struct tern_context_params params = {.device = "cpu", .threads = 3};
    struct tern_context *ctx = tern_context_create(&params);
    const struct {
        enum tern_op op;
        int64_t width, side;
        enum tern_dtype dtype;
    } cases[] = {{TERN_OP_linear, cpu_level(ctx)->nr, 0, TERN_F32},
                 {TERN_OP_linear, TERN_DOT_NR, 0, TERN_F16},
                 {TERN_OP_conv2d, cpu_level(ctx)->nr, 3, TERN_BF16},
                 {TERN_OP_quantized_linear, TERN_DOT_NR, 0, TERN_F32}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct weight w = {cases[i].op, 128 * cases[i].width, 0, cases[i].side, cases[i].dtype};
        w.c = BIG / (w.n * (int64_t)tern_dtype_size(w.dtype) * (w.side ? w.side * w.side : 1));
        struct source s = source_of(ctx, &w);
        const struct tern_op_desc d = desc_of(&w, w.dtype == TERN_F32 ? TERN_F32 : TERN_BF16);
        int n = 0;
        for (const struct tern_kernel *const *k = ctx->device->kernels; *k; k++)
            if ((*k)->op == d.op && (*k)->pack && !(*k)->library && (*k)->supports(ctx->device, &d)) {
                void *packed = malloc((*k)->packed_size(ctx, &d));
                assert_int_equal((*k)->pack(ctx, &d, s.m->data + s.offset, packed), TERN_OK);
                if (support_resident(s.m->data) > (long)(s.size >> 10) / 2)
                    fail_msg("%s: %ld of %zu KiB of the file are mapped", (*k)->name, support_resident(s.m->data), s.size >> 10);
                tern_mapping_advise(s.m, 0, s.m->size, false);
                free(packed);
                n++;
            }
        assert_true(n > 0 || w.dtype != TERN_F32);
        tern_mapping_unref(&s.m);
        free(s.heap);
    }
    tern_context_destroy(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(files_are_packed_as_memory), cmocka_unit_test(most_of_a_file_is_not_mapped)};
    return cmocka_run_group_tests_name("pack", tests, NULL, NULL);
}
