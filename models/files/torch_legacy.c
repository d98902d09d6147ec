/* torch.save's form before PyTorch 1.6: five pickles (magic number, protocol version, system, object, storage keys), then for
 * each key its number of elements (i64) and its bytes. */
#include <string.h>

#include "core/context.h"
#include "models/files/torch_tensors.h"

#define PROTOCOL_VERSION 1001

/* 0x1950a86a20f9469cfc6c, little endian. */
static const uint8_t magic[10] = {0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19};

struct legacy {
    struct tern_context *ctx;
    struct tern_mapping *m;
    size_t at;
    struct tern_pickle *object;
};

static struct tern_pickle *next_pickle(struct legacy *l) { return tern_pickle_load(l->ctx, l->m->data, l->m->size, &l->at, l->m->path); }

static enum tern_status check_magic(struct legacy *l)
{
    struct tern_pickle *p = next_pickle(l);
    if (!p)
        return tern_error_status(l->ctx);
    const struct tern_pickle_value *v = tern_pickle_root(p);
    bool ok = v->type == TERN_PICKLE_BIG_INT && v->text.size == sizeof(magic) && !memcmp(v->text.data, magic, sizeof(magic));
    tern_pickle_free(&p);
    return ok ? TERN_OK : tern_fail(l->ctx, TERN_E_FORMAT, "%s: a pickle, but not one that torch.save wrote", l->m->path);
}

static enum tern_status check_version(struct legacy *l)
{
    struct tern_pickle *p = next_pickle(l);
    if (!p)
        return tern_error_status(l->ctx);
    const struct tern_pickle_value *v = tern_pickle_root(p);
    bool ok = v->type == TERN_PICKLE_INT && v->integer == PROTOCOL_VERSION;
    tern_pickle_free(&p);
    return ok ? TERN_OK
              : tern_fail(l->ctx, TERN_E_FORMAT, "%s: protocol version of torch.save: expected %d, found another", l->m->path,
                          PROTOCOL_VERSION);
}

static enum tern_status check_system(struct legacy *l)
{
    struct tern_pickle *p = next_pickle(l);
    if (!p)
        return tern_error_status(l->ctx);
    const struct tern_pickle_value *v = tern_pickle_get(tern_pickle_root(p), "little_endian");
    bool known = v && v->type == TERN_PICKLE_BOOL, little = known && v->integer;
    tern_pickle_free(&p);
    if (!known)
        return tern_fail(l->ctx, TERN_E_FORMAT, "%s: the byte order that torch.save wrote down is missing", l->m->path);
    return little ? TERN_OK
                  : tern_fail(l->ctx, TERN_E_UNSUPPORTED, "%s: it is big-endian; saving it again on a little-endian machine would help",
                              l->m->path);
}

/* The storages that the object names, each once. */
static enum tern_status list_storages(struct legacy *l, struct tern_torch_file *f)
{
    const struct tern_pickle_storage *s;
    size_t n = 0, kept = 0;
    while (tern_pickle_storage_at(l->object, n))
        n++;
    f->storages = tern_calloc(l->ctx, n, sizeof(*f->storages));
    if (!f->storages)
        return tern_error_status(l->ctx);
    /* One storage is named anew at each tensor that uses it, mostly right after each other. */
    for (size_t i = 0; (s = tern_pickle_storage_at(l->object, i)); i++)
        f->storages[f->count++] = (struct tern_torch_storage){
            .key = s->key, .key_size = s->key_size, .size = (uint64_t)s->numel * s->element, .place = s->element};
    tern_torch_order(f);
    for (size_t i = 0; i < f->count; i++) {
        const struct tern_torch_storage *last = kept ? &f->storages[kept - 1] : NULL, *x = &f->storages[i];
        bool same = last && last->key_size == x->key_size && !memcmp(last->key, x->key, x->key_size);
        if (same && (last->size != x->size || last->place != x->place))
            return tern_fail(l->ctx, TERN_E_FORMAT, "%s: one storage is described in two ways", l->m->path);
        if (!same)
            f->storages[kept++] = *x;
    }
    f->count = kept;
    return TERN_OK;
}

/* One storage's number of elements and bytes, at the place where the file is read. */
static enum tern_status read_storage(struct legacy *l, struct tern_torch_file *f, const struct tern_pickle_value *key)
{
    char text[TERN_PRINTABLE];
    struct tern_torch_storage *s = key->type == TERN_PICKLE_STR ? tern_torch_find(f, key->text.data, key->text.size) : NULL;
    if (!s || s->data)
        return tern_fail(l->ctx, TERN_E_FORMAT, "%s: the list of storages holds one that is unknown or there already", l->m->path);
    tern_printable(s->key, s->key_size, text);
    if (l->m->size - l->at < 8)
        return tern_fail(l->ctx, TERN_E_FORMAT, "%s: storage \"%s\" is missing; the file is truncated", l->m->path, text);
    uint64_t numel = 0;
    for (int i = 7; i >= 0; i--)
        numel = numel << 8 | l->m->data[l->at + (size_t)i];
    l->at += 8;
    if (numel != s->size / s->place)
        return tern_fail(l->ctx, TERN_E_FORMAT, "%s: storage \"%s\": expected %llu elements, found %llu", l->m->path, text,
                         (unsigned long long)(s->size / s->place), (unsigned long long)numel);
    if (s->size > l->m->size - l->at)
        return tern_fail(l->ctx, TERN_E_FORMAT, "%s: storage \"%s\": expected %llu bytes, found %zu; the file is truncated", l->m->path,
                         text, (unsigned long long)s->size, l->m->size - l->at);
    s->data = l->m->data + l->at;
    l->at += (size_t)s->size;
    return TERN_OK;
}

static enum tern_status read_storages(struct legacy *l, struct tern_torch_file *f)
{
    struct tern_pickle *p = next_pickle(l);
    if (!p)
        return tern_error_status(l->ctx);
    const struct tern_pickle_value *keys = tern_pickle_root(p);
    enum tern_status st = TERN_OK;
    if (keys->type != TERN_PICKLE_LIST)
        st = tern_fail(l->ctx, TERN_E_FORMAT, "%s: expected the list of storages behind the objects", l->m->path);
    for (size_t i = 0; !st && i < keys->items.count; i++)
        st = read_storage(l, f, keys->items.at[i]);
    tern_pickle_free(&p);
    for (size_t i = 0; !st && i < f->count; i++)
        if (!f->storages[i].data)
            st = tern_fail(l->ctx, TERN_E_FORMAT, "%s: a storage that the objects name is not in the file", l->m->path);
    return st;
}

enum tern_status tern_torch_legacy_read(struct tern_weights *w, struct tern_mapping *m)
{
    struct legacy l = {.ctx = w->ctx, .m = m};
    struct tern_torch_file f = {.w = w, .m = m, .copies = tern_copy_limit_for(m->size)};
    enum tern_status st = check_magic(&l);
    if (!st)
        st = check_version(&l);
    if (!st)
        st = check_system(&l);
    if (!st && !(l.object = next_pickle(&l)))
        st = tern_error_status(l.ctx);
    if (!st)
        st = list_storages(&l, &f);
    if (!st)
        st = read_storages(&l, &f);
    if (!st)
        st = tern_torch_add(&f, tern_pickle_root(l.object));
    tern_torch_release(&f);
    tern_pickle_free(&l.object);
    w->format = "torch legacy";
    return st;
}
