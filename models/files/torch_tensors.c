/* Names and tensors out of the dicts that torch.save wrote. */
#include "models/files/torch_tensors.h"

#include <stdlib.h>
#include <string.h>

#include "core/context.h"
#include "core/tensor.h"

#define DEPTH_LIMIT 64
#define NAME_LIMIT 2048
/* A dict may be reached in several ways; more visits than this are an attack. */
#define VISIT_LIMIT 4000000
/* What a name is counted as beside its bytes, and what all together may be: so many times the file, which has a tensor's place, sizes and
 * storage beside each, even where a few names lead to the same dict. Small files may do as they like. */
#define NAME_COST 64
#define NAMES_FACTOR 4
#define NAMES_ALWAYS ((size_t)1 << 20)
#define NAMES_MOST ((size_t)256 << 20)

struct named {
    char *name;
    const struct tern_pickle_tensor *tensor;
};

/* The walk through nested dicts, without recursion. */
struct walk {
    struct tern_torch_file *f;
    struct tern_context *ctx;
    struct named *found;
    size_t count, capacity, visits, names, names_limit; /* names: bytes */
    char name[NAME_LIMIT];
    struct frame {
        const struct tern_pickle_value *dict;
        size_t next, name_size; /* index of the next key; length of the name before this dict's keys */
    } frames[DEPTH_LIMIT];
    int depth;
};

static int compare_keys(const char *a, size_t na, const char *b, size_t nb)
{
    int c = memcmp(a, b, na < nb ? na : nb);
    return c ? c : na < nb ? -1 : na > nb;
}

static int compare_storages(const void *a, const void *b)
{
    const struct tern_torch_storage *x = a, *y = b;
    return compare_keys(x->key, x->key_size, y->key, y->key_size);
}

void tern_torch_order(struct tern_torch_file *f)
{
    if (f->count)
        qsort(f->storages, f->count, sizeof(*f->storages), compare_storages);
}

enum tern_status tern_torch_sort(struct tern_torch_file *f)
{
    char text[TERN_PRINTABLE];
    tern_torch_order(f);
    for (size_t i = 1; i < f->count; i++)
        if (!compare_storages(&f->storages[i - 1], &f->storages[i]))
            return tern_fail(f->w->ctx, TERN_E_FORMAT, "%s: storage \"%s\" occurs twice", f->m->path,
                             tern_printable(f->storages[i].key, f->storages[i].key_size, text));
    return TERN_OK;
}

struct tern_torch_storage *tern_torch_find(const struct tern_torch_file *f, const char *key, size_t key_size)
{
    size_t lo = 0, hi = f->count;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        int c = compare_keys(f->storages[mid].key, f->storages[mid].key_size, key, key_size);
        if (!c)
            return &f->storages[mid];
        if (c < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}

void tern_torch_release(struct tern_torch_file *f)
{
    for (size_t i = 0; i < f->count; i++)
        tern_tensor_unref(&f->storages[i].owner);
    tern_free(f->w->ctx, f->storages);
    f->storages = NULL;
    f->count = 0;
}

static size_t names_limit(size_t file_size)
{
    if (file_size > NAMES_MOST / NAMES_FACTOR)
        return NAMES_MOST;
    return file_size * NAMES_FACTOR > NAMES_ALWAYS ? file_size * NAMES_FACTOR : NAMES_ALWAYS;
}

static enum tern_status record(struct walk *k, const struct tern_pickle_tensor *t)
{
    k->names += strlen(k->name) + NAME_COST;
    if (k->names > k->names_limit)
        return tern_fail(
            k->ctx, TERN_E_FORMAT,
            "%s: its dicts name more than %zu tensors, which is more than a file of %zu bytes can need; are the same dicts in it "
            "many times?",
            k->f->m->path, k->count, k->f->m->size);
    if (k->count == k->capacity) {
        size_t n = k->capacity ? 2 * k->capacity : 256;
        struct named *p = tern_realloc(k->ctx, k->found, n * sizeof(*p));
        if (!p)
            return tern_error_status(k->ctx);
        k->found = p;
        k->capacity = n;
    }
    char *name = tern_strdup(k->ctx, k->name);
    if (!name)
        return tern_error_status(k->ctx);
    k->found[k->count++] = (struct named){name, t};
    return TERN_OK;
}

/* Puts the key behind the name of the dicts around it; *size is the length with it. */
static enum tern_status append_key(struct walk *k, size_t before, const struct tern_pickle_value *key, size_t *size)
{
    char text[TERN_PRINTABLE];
    size_t dot = before ? 1 : 0, n = key->text.size;
    if (n >= NAME_LIMIT - before - dot || memchr(key->text.data, 0, n))
        return tern_fail(k->ctx, TERN_E_FORMAT, "%s: the name \"%s\" is too long or holds a NUL character", k->f->m->path,
                         tern_printable(key->text.data, n, text));
    if (dot)
        k->name[before] = '.';
    memcpy(k->name + before + dot, key->text.data, n);
    *size = before + dot + n;
    k->name[*size] = 0;
    return TERN_OK;
}

static enum tern_status enter(struct walk *k, const struct tern_pickle_value *dict, size_t name_size)
{
    if (k->depth == DEPTH_LIMIT)
        return tern_fail(k->ctx, TERN_E_FORMAT, "%s: dicts are nested deeper than %d", k->f->m->path, DEPTH_LIMIT);
    k->frames[k->depth++] = (struct frame){dict, 0, name_size};
    return TERN_OK;
}

/* One key and value of the innermost dict. */
static enum tern_status visit(struct walk *k, const struct frame *f, const struct tern_pickle_value *key, const struct tern_pickle_value *v)
{
    size_t size = 0;
    if (++k->visits > VISIT_LIMIT)
        return tern_fail(k->ctx, TERN_E_FORMAT, "%s: more than %d entries in its dicts", k->f->m->path, VISIT_LIMIT);
    if (key->type != TERN_PICKLE_STR || (v->type != TERN_PICKLE_TENSOR && v->type != TERN_PICKLE_DICT))
        return TERN_OK;
    if (k->depth == 1 && v->type == TERN_PICKLE_DICT && tern_pickle_is(key, "state_dict"))
        return enter(k, v, 0);
    enum tern_status st = append_key(k, f->name_size, key, &size);
    if (!st)
        st = v->type == TERN_PICKLE_DICT ? enter(k, v, size) : record(k, v->tensor);
    return st;
}

static enum tern_status walk_dicts(struct walk *k, const struct tern_pickle_value *root)
{
    enum tern_status st = enter(k, root, 0);
    while (!st && k->depth) {
        struct frame *f = &k->frames[k->depth - 1];
        if (f->next == f->dict->items.count) {
            k->depth--;
            continue;
        }
        size_t i = f->next;
        f->next += 2;
        st = visit(k, f, f->dict->items.at[i], f->dict->items.at[i + 1]);
    }
    return st;
}

/* The meta of a tensor in tern's terms; an error when tern has no such element type. */
static enum tern_status read_meta(struct tern_torch_file *f, const struct named *n, struct tern_meta *meta,
                                  enum tern_file_dtype *file_dtype)
{
    static const struct {
        enum tern_torch_dtype from;
        enum tern_dtype to;
        enum tern_file_dtype file;
    } map[] = {
        {TERN_TORCH_F32, TERN_F32, TERN_FILE_NATIVE},   {TERN_TORCH_F16, TERN_F16, TERN_FILE_NATIVE},
        {TERN_TORCH_BF16, TERN_BF16, TERN_FILE_NATIVE}, {TERN_TORCH_F64, TERN_F32, TERN_FILE_F64},
        {TERN_TORCH_I64, TERN_I64, TERN_FILE_NATIVE},   {TERN_TORCH_I32, TERN_I32, TERN_FILE_NATIVE},
        {TERN_TORCH_I16, TERN_I32, TERN_FILE_I16},      {TERN_TORCH_I8, TERN_I8, TERN_FILE_NATIVE},
        {TERN_TORCH_U32, TERN_I64, TERN_FILE_U32},      {TERN_TORCH_U16, TERN_I32, TERN_FILE_U16},
        {TERN_TORCH_U8, TERN_U8, TERN_FILE_NATIVE},     {TERN_TORCH_BOOL, TERN_BOOL, TERN_FILE_BOOL},
    };
    const struct tern_pickle_tensor *t = n->tensor;
    char text[TERN_PRINTABLE];
    *meta = (struct tern_meta){.ndim = t->ndim};
    memcpy(meta->shape, t->shape, sizeof(t->shape));
    memcpy(meta->stride, t->stride, sizeof(t->stride));
    for (size_t i = 0; i < sizeof(map) / sizeof(*map); i++)
        if (map[i].from == t->dtype) {
            meta->dtype = map[i].to;
            *file_dtype = map[i].file;
            return TERN_OK;
        }
    return tern_fail(f->w->ctx, TERN_E_UNSUPPORTED,
                     "%s: tensor \"%s\" is of type %s, which tern does not compute with; float32, float16 or bfloat16 would help",
                     f->m->path, tern_printable(n->name, strlen(n->name), text), t->type_name);
}

/* The storage of a tensor, checked to be as large as the pickle says. */
static enum tern_status find_storage(struct tern_torch_file *f, const struct named *n, struct tern_torch_storage **out)
{
    char name[TERN_PRINTABLE], key[TERN_PRINTABLE];
    const struct tern_pickle_storage *s = &n->tensor->storage->storage;
    uint64_t size = (uint64_t)s->numel * s->element;
    *out = tern_torch_find(f, s->key, s->key_size);
    if (*out && (*out)->size == size)
        return TERN_OK;
    tern_printable(n->name, strlen(n->name), name);
    tern_printable(s->key, s->key_size, key);
    if (!*out)
        return tern_fail(f->w->ctx, TERN_E_FORMAT, "%s: tensor \"%s\": its storage \"%s\" is missing in the file", f->m->path, name, key);
    return tern_fail(f->w->ctx, TERN_E_FORMAT, "%s: tensor \"%s\": storage \"%s\": expected %llu bytes, found %llu", f->m->path, name, key,
                     (unsigned long long)size, (unsigned long long)(*out)->size);
}

/* Bytes from the storage's first to the tensor's last. */
static uint64_t bytes_used(const struct tern_pickle_tensor *t)
{
    int64_t last = t->offset;
    for (int d = 0; d < t->ndim; d++) {
        if (!t->shape[d])
            return 0;
        last += (t->shape[d] - 1) * t->stride[d];
    }
    return (uint64_t)(last + 1) * t->element;
}

static enum tern_status add_tensor(struct tern_torch_file *f, const struct named *n)
{
    struct tern_meta meta;
    enum tern_file_dtype file_dtype = TERN_FILE_NATIVE;
    struct tern_torch_storage *s = NULL;
    enum tern_status st = read_meta(f, n, &meta, &file_dtype);
    if (!st)
        st = find_storage(f, n, &s);
    if (!st && !s->data && !s->owner && s->size && f->load)
        st = f->load(f, s, n->name);
    if (st)
        return st;
    size_t first = (size_t)n->tensor->offset * n->tensor->element;
    if (!tern_meta_numel(&meta))
        tern_meta_contiguous(&meta);
    const uint8_t *data = (s->owner ? (const uint8_t *)tern_tensor_host(s->owner) : s->data ? s->data : f->m->data) + first;
    bool copy = tern_mapped_needs_copy(data, file_dtype, &meta);
    if (copy)
        st = tern_copy_limit_take(f->w->ctx, &f->copies, (size_t)tern_meta_numel(&meta) * tern_dtype_size(meta.dtype), f->m->path, n->name);
    if (st)
        return st;
    tern_tensor *t;
    if (copy)
        t = tern_copied_tensor(f->w->ctx, data, file_dtype, &meta);
    else if (s->owner)
        t = tern_alias_tensor(s->owner, meta.dtype, meta.ndim, meta.shape, first);
    else
        t = tern_mapped_tensor(f->m, data, file_dtype, &meta);
    return tern_weights_append(f->w, n->name, t);
}

/* What the file calls itself, as textual inversions do. */
static enum tern_status add_own_name(struct tern_torch_file *f, const struct tern_pickle_value *root)
{
    const struct tern_pickle_value *name = tern_pickle_get(root, "name");
    if (!name || name->type != TERN_PICKLE_STR)
        return TERN_OK;
    char *copy = tern_strndup(f->w->ctx, name->text.data, name->text.size);
    enum tern_status st = copy ? tern_weights_add_metadata(f->w, "name", copy) : tern_error_status(f->w->ctx);
    tern_free(f->w->ctx, copy);
    return st;
}

enum tern_status tern_torch_add(struct tern_torch_file *f, const struct tern_pickle_value *root)
{
    struct tern_context *ctx = f->w->ctx;
    if (root->type != TERN_PICKLE_DICT)
        return tern_fail(ctx, TERN_E_FORMAT, "%s: expected a dict of tensors (a state dict), found another object", f->m->path);
    struct walk *k = tern_calloc(ctx, 1, sizeof(*k));
    if (!k)
        return tern_error_status(ctx);
    k->f = f;
    k->ctx = ctx;
    k->names_limit = names_limit(f->m->size);
    enum tern_status st = walk_dicts(k, root);
    for (size_t i = 0; !st && i < k->count; i++) {
        struct tern_torch_storage *s;
        st = find_storage(f, &k->found[i], &s);
        uint64_t need = bytes_used(k->found[i].tensor);
        if (!st && need > s->need)
            s->need = need;
    }
    for (size_t i = 0; !st && i < k->count; i++)
        st = add_tensor(f, &k->found[i]);
    if (!st && !k->count)
        st = tern_fail(ctx, TERN_E_FORMAT, "%s: it holds no named tensors", f->m->path);
    if (!st)
        st = add_own_name(f, root);
    if (!st)
        st = tern_weights_finish(f->w, f->m->path);
    for (size_t i = 0; i < k->count; i++)
        tern_free(ctx, k->found[i].name);
    tern_free(ctx, k->found);
    tern_free(ctx, k);
    return st;
}
