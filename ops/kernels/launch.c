/* What all launches have: slots, macros, posts, and which family makes those of an op. */
#include <stdio.h>
#include <string.h>

#include "ops/kernels/launch_internal.h"

_Static_assert(sizeof(union tern_launch_params) <= 896, "OpenCL promises 1 KiB for all arguments, pointers included");

struct tern_launch *tern_launch_begin(struct tern_launch_maker *m, const char *text, size_t params_size, int group_x, int group_y)
{
    m->l = &m->out->launch[m->out->n];
    m->defines = m->out->defines[m->out->n++];
    m->defines[0] = 0;
    *m->l = (struct tern_launch){.text = text, .params_size = params_size, .group_size = {group_x, group_y}, .groups = {1, 1, 1}};
    tern_launch_define(m, "GROUP_SIZE_X %d", group_x);
    tern_launch_define(m, "GROUP_SIZE_Y %d", group_y);
    return m->l;
}

void tern_launch_define(struct tern_launch_maker *m, const char *fmt, ...)
{
    size_t used = strlen(m->defines), room = TERN_LAUNCH_DEFINES - used;
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(m->defines + used, room, fmt, ap);
    va_end(ap);
    if (n < 0 || (size_t)n + 2 > room) {
        m->defines[used] = 0;
        m->failed = true;
        return;
    }
    memcpy(m->defines + used + n, "\n", 2);
}

/* Upper-case names of include/tern/base.h's dtypes. */
static const char *const stored_as[TERN_DTYPE_COUNT] = {"F32", "F16", "BF16", "I8", "U8", "I32", "I64", "BOOL"};
static const char *const words_of[TERN_DTYPE_COUNT] = {"F32", "F16W", "BF16W", "I8W", "U8W", "I32", "I64", "BOOLW"};

static bool stores(const struct tern_launch_maker *m, enum tern_dtype dtype)
{
    size_t size = tern_dtype_size(dtype);
    return size >= 4 || (size == 2 ? m->limits->storage16 : m->limits->storage8);
}

const char *tern_launch_read_dtype(const struct tern_launch_maker *m, enum tern_dtype dtype)
{
    return stores(m, dtype) ? stored_as[dtype] : words_of[dtype];
}

void tern_launch_slot(struct tern_launch_maker *m, const char *name, int what, const char *dtype, size_t size)
{
    struct tern_launch *l = m->l;
    if (l->n_slots >= TERN_MAX_SLOTS) {
        m->failed = true;
        return;
    }
    l->slot[l->n_slots].what = what;
    l->slot[l->n_slots++].size = size;
    tern_launch_define(m, "DTYPE_%s %s", name, dtype);
}

static enum tern_dtype dtype_of(const struct tern_launch_maker *m, int what)
{
    return what == TERN_SLOT_WORKSPACE ? TERN_F32 : what == TERN_SLOT_OUT ? m->d->out.dtype : m->d->in[what].dtype;
}

void tern_launch_read(struct tern_launch_maker *m, const char *name, int what)
{
    enum tern_dtype dtype = dtype_of(m, what);
    tern_launch_slot(m, name, what, tern_launch_read_dtype(m, dtype), tern_dtype_size(dtype));
}

void tern_launch_read4(struct tern_launch_maker *m, const char *name, int what)
{
    static const char *const by_four[] = {[TERN_F32] = "F32X4", [TERN_F16] = "F16X4", [TERN_BF16] = "BF16X4"};
    enum tern_dtype dtype = dtype_of(m, what);
    tern_launch_slot(m, name, what, by_four[dtype], tern_dtype_size(dtype));
}

void tern_launch_read8(struct tern_launch_maker *m, const char *name, int what)
{
    enum tern_dtype dtype = dtype_of(m, what);
    tern_launch_slot(m, name, what, dtype == TERN_F16 ? "F16X8" : "BF16X8", tern_dtype_size(dtype));
}

void tern_launch_write(struct tern_launch_maker *m, const char *name, int what)
{
    enum tern_dtype dtype = dtype_of(m, what);
    tern_launch_slot(m, name, what, stored_as[dtype], tern_dtype_size(dtype));
    m->failed = m->failed || !stores(m, dtype);
}

void tern_launch_items(struct tern_launch_maker *m, int64_t n, int per_group)
{
    int64_t groups = (n + per_group - 1) / per_group;
    m->l->groups[0] = (int)(groups < m->limits->max_groups ? groups : m->limits->max_groups);
}

void tern_launch_subgroups(struct tern_launch_maker *m)
{
    int n = m->limits->subgroup;
    m->l->subgroups = n > 1 && m->l->group_size[1] == 1 && m->l->group_size[0] % n == 0;
    if (m->l->subgroups)
        tern_launch_define(m, "SUBGROUP %d", n);
}

void tern_launch_dot_product(struct tern_launch_maker *m)
{
    m->l->dot_product = m->limits->dot_product;
    if (m->l->dot_product)
        tern_launch_define(m, "DOT_PRODUCT 1");
}

/* Sizes of 2^30 and more do not fit indices of 32 bits with room for sums. */
static bool fits(const struct tern_meta *m)
{
    return tern_meta_numel(m) < TERN_LAUNCH_MAX_ELEMENTS && tern_meta_span(m) < TERN_LAUNCH_MAX_ELEMENTS;
}

bool tern_launches_make(const struct tern_op_desc *d, const struct tern_launch_limits *limits, struct tern_launches *out)
{
    struct tern_launch_maker m = {.d = d, .limits = limits, .out = out};
    out->n = 0;
    out->workspace = 0;
    bool all = fits(&d->out);
    for (int i = 0; i < d->n_in; i++)
        all = all && (!d->present[i] || fits(&d->in[i]));
    if (!all)
        return false;
#define TRY(family)               \
    if (tern_launch_##family(&m)) \
        return !m.failed;
    TERN_LAUNCH_FAMILIES(TRY)
#undef TRY
    return false;
}
