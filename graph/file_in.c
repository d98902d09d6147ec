/* Plans on disk: the numbers and texts of a file, bounded. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/context.h"
#include "graph/file.h"

enum tern_status tern_file_wrong(const struct tern_file_in *in, const char *fmt, ...)
{
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    return in->cut ? tern_fail(in->ctx, TERN_E_FORMAT, "%zu bytes end in the middle of the plan", in->size)
                   : tern_fail(in->ctx, TERN_E_FORMAT, "before byte %zu: %s", in->at, text);
}

const void *tern_file_take(struct tern_file_in *in, size_t n)
{
    const uint8_t *p = in->data + in->at;
    if (in->cut || n > in->size - in->at) {
        in->cut = true;
        return NULL;
    }
    in->at += n;
    return p;
}

uint64_t tern_file_number(struct tern_file_in *in, size_t size)
{
    uint64_t x = 0;
    const uint8_t *p = tern_file_take(in, size);
    for (size_t i = 0; p && i < size; i++)
        x |= (uint64_t)p[i] << 8 * i;
    return x;
}

int tern_file_count(struct tern_file_in *in, size_t size, int most)
{
    uint64_t x = tern_file_number(in, size);
    return !in->cut && x <= (uint64_t)most ? (int)x : -1;
}

int tern_file_value(struct tern_file_in *in, bool absent)
{
    uint32_t x = (uint32_t)tern_file_number(in, 4);
    return !in->cut && x < (uint32_t)in->graph->n_values ? (int)x : absent && x == UINT32_MAX ? -1 : -2;
}

bool tern_file_meta(struct tern_file_in *in, struct tern_meta *m)
{
    uint64_t dtype = tern_file_number(in, 1), ndim = tern_file_number(in, 1);
    *m = (struct tern_meta){.dtype = (enum tern_dtype)dtype, .ndim = (int)ndim};
    for (int i = 0; i < m->ndim && m->ndim <= TERN_MAX_DIMS; i++)
        m->shape[i] = (int64_t)tern_file_number(in, 8);
    for (int i = 0; i < m->ndim && m->ndim <= TERN_MAX_DIMS; i++)
        m->stride[i] = (int64_t)tern_file_number(in, 8);
    return !in->cut && tern_meta_is_sane(m);
}

bool tern_file_text(struct tern_file_in *in, size_t length_size, int most, char *out)
{
    int n = tern_file_count(in, length_size, most);
    const char *p = n < 0 ? NULL : tern_file_take(in, (size_t)n);
    if (!p || memchr(p, 0, (size_t)n))
        return false;
    memcpy(out, p, (size_t)n);
    out[n] = 0;
    return true;
}
