/* torch.save's current form: a zip archive NAME/ with data.pkl, data/KEY for each storage, byteorder and version.
 * Stored members are used where they lie in the mapped file; deflated ones are unpacked by libzip, within limits. */
#include <string.h>
#include <zip.h>

#include "core/context.h"
#include "core/tensor.h"
#include "models/files/torch_tensors.h"
#include "models/files/zip_directory.h"

/* A state dict's pickle takes about 150 bytes a tensor. */
#define PICKLE_LIMIT ((uint64_t)64 << 20)
#define SMALL_LIMIT ((uint64_t)4096)

enum { STORED = 0, DEFLATED = 8 };

struct archive {
    struct tern_context *ctx;
    struct tern_mapping *m;
    struct tern_zip_directory directory;
    zip_t *zip; /* opened when the first deflated member is read */
    const char *prefix;
    size_t prefix_size; /* with the slash */
};

static bool name_is(const struct archive *a, const struct tern_zip_member *m, const char *name)
{
    size_t n = strlen(name);
    return m->name_size == a->prefix_size + n && !memcmp(m->name, a->prefix, a->prefix_size) && !memcmp(m->name + a->prefix_size, name, n);
}

static const struct tern_zip_member *find(const struct archive *a, const char *name)
{
    for (size_t i = 0; i < a->directory.count; i++)
        if (name_is(a, &a->directory.members[i], name))
            return &a->directory.members[i];
    return NULL;
}

static enum tern_status bad_member(const struct archive *a, const struct tern_zip_member *m, enum tern_status st, const char *problem)
{
    char text[TERN_PRINTABLE];
    return tern_fail(a->ctx, st, "%s: zip member \"%s\" %s", a->m->path, tern_printable(m->name, m->name_size, text), problem);
}

static enum tern_status open_zip(struct archive *a)
{
    zip_error_t e;
    if (a->zip)
        return TERN_OK;
    zip_error_init(&e);
    zip_source_t *source = zip_source_buffer_create(a->m->data, a->m->size, 0, &e);
    if (source && !(a->zip = zip_open_from_source(source, ZIP_RDONLY, &e)))
        zip_source_free(source);
    enum tern_status st = a->zip ? TERN_OK : tern_fail(a->ctx, TERN_E_FORMAT, "%s: %s", a->m->path, zip_error_strerror(&e));
    zip_error_fini(&e);
    return st;
}

/* Unpacks a deflated member: exactly the size that the directory tells, not a byte more. */
static enum tern_status inflate_member(struct archive *a, const struct tern_zip_member *m, uint8_t *out)
{
    zip_stat_t info;
    uint64_t done = 0;
    uint8_t extra;
    if (open_zip(a))
        return TERN_E_FORMAT;
    if (zip_stat_index(a->zip, m->index, 0, &info) || info.size != m->size || info.comp_size != m->packed)
        return bad_member(a, m, TERN_E_FORMAT, "is described in two ways");
    zip_file_t *f = zip_fopen_index(a->zip, m->index, 0);
    if (!f)
        return bad_member(a, m, TERN_E_FORMAT, "cannot be unpacked");
    while (done < m->size) {
        zip_int64_t n = zip_fread(f, out + done, m->size - done);
        if (n <= 0)
            break;
        done += (uint64_t)n;
    }
    bool more = done == m->size && zip_fread(f, &extra, 1) > 0;
    bool bad = zip_fclose(f) || done < m->size;
    if (more)
        return bad_member(a, m, TERN_E_FORMAT, "unpacks to more bytes than it declares; it is refused as a zip bomb");
    return bad ? bad_member(a, m, TERN_E_FORMAT, "is damaged: it does not unpack to the bytes it declares") : TERN_OK;
}

static enum tern_status check_member(const struct archive *a, const struct tern_zip_member *m)
{
    if (m->encrypted)
        return bad_member(a, m, TERN_E_UNSUPPORTED, "is encrypted");
    if (m->method != STORED && m->method != DEFLATED)
        return bad_member(a, m, TERN_E_UNSUPPORTED, "is packed with a method other than deflate; torch.save stores it unpacked");
    if (m->method == STORED && m->packed != m->size)
        return bad_member(a, m, TERN_E_FORMAT, "is stored, yet has two sizes");
    return TERN_OK;
}

/* A small member as bytes: where it lies, or unpacked into *owned (tern_free). */
static enum tern_status read_member(struct archive *a, const struct tern_zip_member *m, uint64_t limit, const uint8_t **data,
                                    uint8_t **owned)
{
    enum tern_status st = check_member(a, m);
    *owned = NULL;
    if (!st && m->size > limit)
        st = bad_member(a, m, TERN_E_FORMAT, "declares more bytes than it can need; it is refused as a zip bomb");
    if (!st && m->method == STORED)
        return tern_zip_member_data(a->ctx, a->m->data, a->m->size, a->m->path, m, data);
    if (!st && !(*owned = tern_alloc(a->ctx, (size_t)m->size)))
        st = TERN_E_NO_MEMORY;
    *data = *owned;
    return st ? st : inflate_member(a, m, *owned);
}

/* Sets where a storage's bytes are: called when the first tensor needs them. */
static enum tern_status load_storage(struct tern_torch_file *f, struct tern_torch_storage *s, const char *tensor)
{
    struct archive *a = f->user;
    char text[TERN_PRINTABLE], name[TERN_PRINTABLE];
    const struct tern_zip_member *m = &a->directory.members[s->place];
    enum tern_status st = check_member(a, m);
    if (!st && m->method == STORED)
        return tern_zip_member_data(a->ctx, a->m->data, a->m->size, a->m->path, m, &s->data);
    if (!st && s->size > s->need)
        st = tern_fail(a->ctx, TERN_E_FORMAT,
                       "%s: zip member \"%s\" declares %llu bytes where its tensors (\"%s\") need %llu; it is refused as a zip bomb",
                       a->m->path, tern_printable(m->name, m->name_size, text), (unsigned long long)s->size,
                       tern_printable(tensor, strlen(tensor), name), (unsigned long long)s->need);
    if (!st)
        st = tern_copy_limit_take(a->ctx, &f->copies, (size_t)s->size, a->m->path, tensor);
    if (!st && !(s->owner = tern_owned_bytes(a->ctx, (size_t)s->size)))
        st = TERN_E_NO_MEMORY;
    return st ? st : inflate_member(a, m, tern_tensor_host(s->owner));
}

/* The archive's one folder is told by the place of data.pkl. */
static enum tern_status find_prefix(struct archive *a)
{
    static const char pickle[] = "/data.pkl";
    const size_t n = sizeof(pickle) - 1;
    for (size_t i = 0; i < a->directory.count; i++) {
        const struct tern_zip_member *m = &a->directory.members[i];
        if (m->name_size > n && !memcmp(m->name + m->name_size - n, pickle, n) && !memchr(m->name, '/', m->name_size - n)) {
            a->prefix = m->name;
            a->prefix_size = m->name_size - n + 1;
            return TERN_OK;
        }
    }
    return tern_fail(a->ctx, TERN_E_FORMAT, "%s: a zip archive without data.pkl, so not written by torch.save", a->m->path);
}

static enum tern_status check_byte_order(struct archive *a)
{
    const struct tern_zip_member *m = find(a, "byteorder");
    const uint8_t *data;
    uint8_t *owned = NULL;
    if (!m)
        return TERN_OK;
    enum tern_status st = read_member(a, m, SMALL_LIMIT, &data, &owned);
    if (!st && (m->size != 6 || memcmp(data, "little", 6)))
        st = tern_fail(a->ctx, TERN_E_UNSUPPORTED,
                       "%s: its byte order is not \"little\"; saving it again on a little-endian machine would help", a->m->path);
    tern_free(a->ctx, owned);
    return st;
}

static enum tern_status list_storages(struct archive *a, struct tern_torch_file *f)
{
    static const char folder[] = "data/";
    const size_t n = a->prefix_size + sizeof(folder) - 1;
    f->storages = tern_calloc(a->ctx, a->directory.count, sizeof(*f->storages));
    if (!f->storages)
        return tern_error_status(a->ctx);
    for (size_t i = 0; i < a->directory.count; i++) {
        const struct tern_zip_member *m = &a->directory.members[i];
        if (m->name_size > n && !memcmp(m->name, a->prefix, a->prefix_size) &&
            !memcmp(m->name + a->prefix_size, folder, sizeof(folder) - 1))
            f->storages[f->count++] =
                (struct tern_torch_storage){.key = m->name + n, .key_size = m->name_size - n, .size = m->size, .place = i};
    }
    return tern_torch_sort(f);
}

static enum tern_status read_archive(struct archive *a, struct tern_weights *w)
{
    const uint8_t *data = NULL;
    uint8_t *owned = NULL;
    size_t at = 0;
    struct tern_torch_file f = {.w = w, .m = a->m, .copies = tern_copy_limit_for(a->m->size), .load = load_storage, .user = a};
    const struct tern_zip_member *m = find(a, "data.pkl");
    enum tern_status st = check_byte_order(a);
    if (!st)
        st = read_member(a, m, PICKLE_LIMIT, &data, &owned);
    struct tern_pickle *p = st ? NULL : tern_pickle_load(a->ctx, data, (size_t)m->size, &at, a->m->path);
    if (!st && !p)
        st = tern_error_status(a->ctx);
    if (!st)
        st = list_storages(a, &f);
    if (!st)
        st = tern_torch_add(&f, tern_pickle_root(p));
    tern_torch_release(&f);
    tern_pickle_free(&p);
    tern_free(a->ctx, owned);
    return st;
}

enum tern_status tern_torch_zip_read(struct tern_weights *w, struct tern_mapping *m)
{
    struct archive a = {.ctx = w->ctx, .m = m};
    enum tern_status st = tern_zip_directory_read(a.ctx, m->data, m->size, m->path, &a.directory);
    if (!st)
        st = find_prefix(&a);
    if (!st)
        st = read_archive(&a, w);
    if (a.zip)
        zip_discard(a.zip);
    tern_free(a.ctx, a.directory.members);
    w->format = "torch zip";
    return st;
}
