/* The globals that a pickle may name, and what calling them builds. Every other one is refused, so that reading a file
 * cannot run anything. */
#include <string.h>

#include "core/memory.h"
#include "core/shape.h"
#include "models/files/pickle_machine.h"
#include "models/files/weights.h"

#define MODULE_ATTRIBUTES 64 /* at most; torch has some twenty */

enum kind {
    DICT,
    MODULE, /* of parameters: a dict, see tern_pickle_set_state */
    SET,
    SIZE,      /* torch.Size: a tuple */
    OPAQUE,    /* called or not, of no interest */
    STORAGE,   /* a type in a persistent id */
    DTYPE,     /* an argument of _rebuild_tensor_v3 */
    TENSOR,    /* (storage, offset, size, stride, …) */
    TENSOR_V3, /* (storage, offset, size, stride, requires_grad, hooks, dtype, …) */
    PARAMETER  /* (tensor, …) */
};

/* What torch.save of current and old versions writes for state dicts; and what stands beside them in files of whole trainings: the first
 * Stable Diffusion files name Lightning's callback, others numbers of NumPy, textual inversions of the original code a ParameterDict. */
static const struct global {
    const char *module, *name;
    enum kind kind;
    enum tern_torch_dtype dtype;
    size_t element; /* bytes */
} globals[] = {
    {"collections", "OrderedDict", DICT, 0, 0},
    {"builtins", "set", SET, 0, 0},
    {"__builtin__", "set", SET, 0, 0},
    {"builtins", "frozenset", SET, 0, 0},
    {"__builtin__", "frozenset", SET, 0, 0},
    {"_codecs", "encode", OPAQUE, 0, 0},
    {"pytorch_lightning.callbacks.model_checkpoint", "ModelCheckpoint", OPAQUE, 0, 0},
    {"lightning.pytorch.callbacks.model_checkpoint", "ModelCheckpoint", OPAQUE, 0, 0},
    {"numpy", "dtype", OPAQUE, 0, 0},
    {"numpy.core.multiarray", "scalar", OPAQUE, 0, 0},
    {"numpy._core.multiarray", "scalar", OPAQUE, 0, 0},
    {"torch.nn.modules.container", "ParameterDict", MODULE, 0, 0},
    {"torch", "Size", SIZE, 0, 0},
    {"torch", "device", OPAQUE, 0, 0},
    {"torch._utils", "_rebuild_tensor", TENSOR, 0, 0},
    {"torch._utils", "_rebuild_tensor_v2", TENSOR, 0, 0},
    {"torch._utils", "_rebuild_tensor_v3", TENSOR_V3, 0, 0},
    {"torch._utils", "_rebuild_parameter", PARAMETER, 0, 0},
    {"torch._utils", "_rebuild_parameter_with_state", PARAMETER, 0, 0},
    {"torch", "FloatStorage", STORAGE, TERN_TORCH_F32, 4},
    {"torch", "DoubleStorage", STORAGE, TERN_TORCH_F64, 8},
    {"torch", "HalfStorage", STORAGE, TERN_TORCH_F16, 2},
    {"torch", "BFloat16Storage", STORAGE, TERN_TORCH_BF16, 2},
    {"torch", "LongStorage", STORAGE, TERN_TORCH_I64, 8},
    {"torch", "IntStorage", STORAGE, TERN_TORCH_I32, 4},
    {"torch", "ShortStorage", STORAGE, TERN_TORCH_I16, 2},
    {"torch", "CharStorage", STORAGE, TERN_TORCH_I8, 1},
    {"torch", "ByteStorage", STORAGE, TERN_TORCH_U8, 1},
    {"torch", "BoolStorage", STORAGE, TERN_TORCH_BOOL, 1},
    {"torch", "ComplexFloatStorage", STORAGE, TERN_TORCH_FOREIGN, 8},
    {"torch", "ComplexDoubleStorage", STORAGE, TERN_TORCH_FOREIGN, 16},
    {"torch", "UntypedStorage", STORAGE, TERN_TORCH_UNTYPED, 1},
    {"torch.storage", "UntypedStorage", STORAGE, TERN_TORCH_UNTYPED, 1},
    {"torch.storage", "_UntypedStorage", STORAGE, TERN_TORCH_UNTYPED, 1},
    {"torch", "float32", DTYPE, TERN_TORCH_F32, 4},
    {"torch", "float64", DTYPE, TERN_TORCH_F64, 8},
    {"torch", "float16", DTYPE, TERN_TORCH_F16, 2},
    {"torch", "bfloat16", DTYPE, TERN_TORCH_BF16, 2},
    {"torch", "int64", DTYPE, TERN_TORCH_I64, 8},
    {"torch", "int32", DTYPE, TERN_TORCH_I32, 4},
    {"torch", "int16", DTYPE, TERN_TORCH_I16, 2},
    {"torch", "int8", DTYPE, TERN_TORCH_I8, 1},
    {"torch", "uint8", DTYPE, TERN_TORCH_U8, 1},
    {"torch", "uint16", DTYPE, TERN_TORCH_U16, 2},
    {"torch", "uint32", DTYPE, TERN_TORCH_U32, 4},
    {"torch", "uint64", DTYPE, TERN_TORCH_FOREIGN, 8},
    {"torch", "bool", DTYPE, TERN_TORCH_BOOL, 1},
    {"torch", "complex64", DTYPE, TERN_TORCH_FOREIGN, 8},
    {"torch", "float8_e4m3fn", DTYPE, TERN_TORCH_FOREIGN, 1},
    {"torch", "float8_e5m2", DTYPE, TERN_TORCH_FOREIGN, 1},
};

static bool equals(const char *s, const char *text, size_t n) { return strlen(s) == n && !memcmp(s, text, n); }

value *tern_pickle_global(struct tern_pickle *p, const char *module, size_t module_size, const char *name, size_t name_size)
{
    char m[TERN_PRINTABLE], n[TERN_PRINTABLE];
    for (size_t i = 0; i < sizeof(globals) / sizeof(*globals); i++)
        if (equals(globals[i].module, module, module_size) && equals(globals[i].name, name, name_size)) {
            value *v = tern_pickle_value_new(p, TERN_PICKLE_GLOBAL);
            if (v)
                v->global = (int)i;
            return v;
        }
    tern_pickle_fail(p,
                     "it names \"%s.%s\", which is code and not a weight, so the file is refused; only tensors and plain containers "
                     "are read. Saving the state dict alone, best as safetensors, would help",
                     tern_printable(module, module_size, m), tern_printable(name, name_size, n));
    return NULL;
}

/* Argument i of that type; NULL (error recorded) when it is something else. */
static const value *argument(struct tern_pickle *p, const struct global *g, const value *args, size_t i, enum tern_pickle_type type)
{
    if (i < args->items.count && args->items.at[i]->type == type)
        return args->items.at[i];
    tern_pickle_fail(p, "argument %zu of %s.%s is missing or of a wrong type", i, g->module, g->name);
    return NULL;
}

static bool read_sizes(const value *tuple, int64_t *out)
{
    for (size_t i = 0; i < tuple->items.count; i++) {
        if (tuple->items.at[i]->type != TERN_PICKLE_INT || tuple->items.at[i]->integer < 0)
            return false;
        out[i] = tuple->items.at[i]->integer;
    }
    return true;
}

/* Every element must lie in the storage, counted in the tensor's own elements. */
static bool fits_storage(const struct tern_pickle_tensor *t, int64_t numel)
{
    const struct tern_pickle_storage *s = &t->storage->storage;
    int64_t last = t->offset, have = (int64_t)((size_t)s->numel * s->element / t->element), step;
    if (!numel)
        return t->offset <= have;
    for (int d = 0; d < t->ndim; d++)
        if (__builtin_mul_overflow(t->shape[d] - 1, t->stride[d], &step) || __builtin_add_overflow(last, step, &last))
            return false;
    return last < have;
}

/* Strides that no element follows may be anything; sums of them need not fit. */
static void drop_unused_strides(struct tern_pickle_tensor *t, int64_t numel)
{
    for (int d = 0; d < t->ndim; d++)
        if (!numel || t->shape[d] == 1)
            t->stride[d] = 0;
}

static value *build_tensor(struct tern_pickle *p, const struct global *g, const value *args)
{
    int64_t numel;
    const value *storage = argument(p, g, args, 0, TERN_PICKLE_STORAGE),
                *offset = storage ? argument(p, g, args, 1, TERN_PICKLE_INT) : NULL;
    const value *size = offset ? argument(p, g, args, 2, TERN_PICKLE_TUPLE) : NULL;
    const value *stride = size ? argument(p, g, args, 3, TERN_PICKLE_TUPLE) : NULL;
    const value *dtype = stride && g->kind == TENSOR_V3 ? argument(p, g, args, 6, TERN_PICKLE_GLOBAL) : NULL;
    if (!stride || (g->kind == TENSOR_V3 && !dtype))
        return NULL;
    value *v = tern_pickle_value_new(p, TERN_PICKLE_TENSOR);
    struct tern_pickle_tensor *t = v ? tern_pickle_alloc(p, sizeof(*t)) : NULL;
    if (!t)
        return NULL;
    *t = (struct tern_pickle_tensor){.storage = storage,
                                     .dtype = storage->storage.dtype,
                                     .type_name = storage->storage.type_name,
                                     .element = storage->storage.element,
                                     .ndim = (int)size->items.count,
                                     .offset = offset->integer};
    if (dtype) {
        const struct global *d = &globals[dtype->global];
        t->dtype = d->kind == DTYPE ? d->dtype : TERN_TORCH_FOREIGN;
        t->type_name = d->name;
        t->element = d->kind == DTYPE ? d->element : 1;
    }
    if (size->items.count > TERN_MAX_DIMS || size->items.count != stride->items.count || !read_sizes(size, t->shape) ||
        !read_sizes(stride, t->stride) || t->offset < 0 || !tern_shape_valid(t->ndim, t->shape, &numel)) {
        tern_pickle_fail(
            p, "a tensor's offset, size or stride is not valid: expected at most %d dimensions, none negative, a product that fits",
            TERN_MAX_DIMS);
        return NULL;
    }
    if (!fits_storage(t, numel)) {
        tern_pickle_fail(p, "a tensor lies outside its storage of %lld elements", (long long)storage->storage.numel);
        return NULL;
    }
    drop_unused_strides(t, numel);
    v->tensor = t;
    return v;
}

/* OrderedDict(): empty; OrderedDict([(k, v), …]): as Python 2 wrote it. */
static value *build_dict(struct tern_pickle *p, const value *args)
{
    value *v = tern_pickle_value_new(p, TERN_PICKLE_DICT);
    if (!v || !args->items.count)
        return v;
    const value *pairs = args->items.at[0];
    bool ok = pairs->type == TERN_PICKLE_LIST || pairs->type == TERN_PICKLE_TUPLE;
    for (size_t i = 0; ok && i < pairs->items.count; i++) {
        const value *pair = pairs->items.at[i];
        ok = (pair->type == TERN_PICKLE_LIST || pair->type == TERN_PICKLE_TUPLE) && pair->items.count == 2;
        if (ok && tern_pickle_items_add(p, v, pair->items.at, 2))
            return NULL;
    }
    if (ok)
        return v;
    tern_pickle_fail(p, "collections.OrderedDict: expected a list of pairs");
    return NULL;
}

static value *build_sequence(struct tern_pickle *p, const struct global *g, const value *args)
{
    enum tern_pickle_type type = g->kind == SET ? TERN_PICKLE_SET : TERN_PICKLE_TUPLE;
    if (!args->items.count)
        return tern_pickle_value_new(p, type);
    const value *from = args->items.at[0];
    if (from->type == TERN_PICKLE_LIST || from->type == TERN_PICKLE_TUPLE || from->type == TERN_PICKLE_SET)
        return tern_pickle_items_new(p, type, from->items.at, from->items.count);
    tern_pickle_fail(p, "%s.%s: expected a list or tuple", g->module, g->name);
    return NULL;
}

value *tern_pickle_call(struct tern_pickle *p, const value *callable, const value *args)
{
    if (callable->type != TERN_PICKLE_GLOBAL || args->type != TERN_PICKLE_TUPLE) {
        tern_pickle_fail(p, "it calls something that is no function; the file is damaged or refused");
        return NULL;
    }
    const struct global *g = &globals[callable->global];
    switch (g->kind) {
    case DICT:
        return build_dict(p, args);
    case MODULE:
        return tern_pickle_value_new(p, TERN_PICKLE_DICT);
    case SET:
    case SIZE:
        return build_sequence(p, g, args);
    case OPAQUE:
        return tern_pickle_value_new(p, TERN_PICKLE_OPAQUE);
    case TENSOR:
    case TENSOR_V3:
        return build_tensor(p, g, args);
    case PARAMETER:
        return (value *)(uintptr_t)argument(p, g, args, 0, TERN_PICKLE_TENSOR);
    case STORAGE:
    case DTYPE:
        break;
    }
    tern_pickle_fail(p, "it calls \"%s.%s\", which builds no tensor; the file is refused", g->module, g->name);
    return NULL;
}

bool tern_pickle_set_state(struct tern_pickle *p, value *object, const value *state)
{
    const bool few =
        state->type == TERN_PICKLE_DICT && state->items.count <= 2 * MODULE_ATTRIBUTES; /* else it is none, and slow to look through */
    const value *parameters = few ? tern_pickle_get(state, "_parameters") : NULL;
    if (object->type != TERN_PICKLE_DICT && object->type != TERN_PICKLE_TENSOR && object->type != TERN_PICKLE_OPAQUE) {
        tern_pickle_fail(p, "it sets attributes of something that is no dict and no tensor; the file is refused");
        return false;
    }
    if (object->type != TERN_PICKLE_DICT || object->items.count || !parameters || parameters->type != TERN_PICKLE_DICT)
        return true;
    return !tern_pickle_items_add(p, object, parameters->items.at, parameters->items.count);
}

/* ("storage", torch.FloatStorage, "key", "cpu", numel), in legacy files with a view's description or None behind. */
value *tern_pickle_persistent(struct tern_pickle *p, const value *id)
{
    value *const *a = id->type == TERN_PICKLE_TUPLE ? id->items.at : NULL;
    if (!a || id->items.count < 5 || !tern_pickle_is(a[0], "storage") || a[1]->type != TERN_PICKLE_GLOBAL ||
        globals[a[1]->global].kind != STORAGE || a[2]->type != TERN_PICKLE_STR || a[4]->type != TERN_PICKLE_INT || a[4]->integer < 0) {
        tern_pickle_fail(
            p, "expected a storage: (\"storage\", type, key, location, number of elements); found something else, which is refused");
        return NULL;
    }
    if (id->items.count > 5 && a[5]->type != TERN_PICKLE_NONE) {
        tern_pickle_fail(
            p, "a storage is a view of another, as PyTorch before 0.4 wrote it; saving the file again with a current PyTorch would help");
        return NULL;
    }
    value *v = tern_pickle_value_new(p, TERN_PICKLE_STORAGE);
    const struct global *g = &globals[a[1]->global];
    size_t bytes;
    if (v && (!tern_mul_size((size_t)a[4]->integer, g->element, &bytes) || bytes > INT64_MAX)) {
        tern_pickle_fail(p, "a storage of %lld elements does not fit in memory", (long long)a[4]->integer);
        return NULL;
    }
    if (v)
        v->storage = (struct tern_pickle_storage){g->dtype, g->name, g->element, a[2]->text.data, a[2]->text.size, a[4]->integer};
    return v;
}
