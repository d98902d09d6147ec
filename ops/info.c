/* The table of ops, generated from ops.def. */
#include <string.h>

#include "ops/kernel.h"

#define I(field) {#field, TERN_ATTR_INT, offsetof(CURRENT, field), 1},
#define I2(field) {#field, TERN_ATTR_INT, offsetof(CURRENT, field), 2},
#define IV(field) \
    {#field "_n", TERN_ATTR_INT, offsetof(CURRENT, field##_n), 1}, {#field, TERN_ATTR_INT, offsetof(CURRENT, field), TERN_MAX_DIMS},
#define P(field) \
    {#field "_n", TERN_ATTR_INT, offsetof(CURRENT, field##_n), 1}, {#field, TERN_ATTR_INT, offsetof(CURRENT, field), 2 * TERN_MAX_DIMS},
#define F(field) {#field, TERN_ATTR_FLOAT, offsetof(CURRENT, field), 1},

/* attrs_conv2d[]: each ends with an entry without a name. The struct's name is passed by a type alias, because the
 * rows of ops.def do not repeat it. */
#define OP(op, inputs, attrs, counterpart)                                                           \
    static const struct tern_attr_info *attrs_of_##op(int *count)                                    \
    {                                                                                                \
        typedef struct tern_##op##_attrs CURRENT;                                                    \
        static const struct tern_attr_info table[] = {attrs{"", TERN_ATTR_INT, sizeof(CURRENT), 0}}; \
        *count = (int)(sizeof(table) / sizeof(*table)) - 1;                                          \
        return table;                                                                                \
    }
#include "ops/ops.def"
#undef OP

struct row {
    const char *name, *inputs;
    const struct tern_attr_info *(*attrs)(int *count);
    size_t attrs_size;
    enum tern_status (*shape)(struct tern_context *, struct tern_op_desc *);
    void (*reference)(const struct tern_kernel_args *);
};

static const struct row rows[] = {
#define OP(op, inputs, attrs, counterpart) {#op, inputs, attrs_of_##op, sizeof(struct tern_##op##_attrs), tern_shape_##op, tern_ref_##op},
#include "ops/ops.def"
#undef OP
};

/* "x weight bias?" -> 2..3; "tensors*" -> 1..TERN_MAX_INPUTS */
static void count_inputs(const char *inputs, int *min, int *max)
{
    *min = *max = 0;
    for (const char *p = inputs; *p;) {
        size_t n = strcspn(p, " ");
        bool optional = p[n - 1] == '?', repeats = p[n - 1] == '*';
        *min += !optional;
        *max += repeats ? TERN_MAX_INPUTS : 1;
        p += n;
        p += strspn(p, " ");
    }
}

struct tern_op_info tern_op_get(enum tern_op op)
{
    const struct row *r = &rows[op];
    struct tern_op_info info = {
        .name = r->name, .inputs = r->inputs, .attrs_size = r->attrs_size, .shape = r->shape, .reference = r->reference};
    info.attrs = r->attrs(&info.n_attrs);
    count_inputs(r->inputs, &info.min_inputs, &info.max_inputs);
    return info;
}

enum tern_op tern_op_find(const char *name)
{
    for (int i = 0; i < TERN_OP_COUNT; i++)
        if (!strcmp(rows[i].name, name))
            return (enum tern_op)i;
    return TERN_OP_COUNT;
}
