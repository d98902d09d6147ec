/* Keys of descriptions. Field by field: padding and addresses differ between processes. */
#include "ops/key.h"

#include <stdio.h>
#include <string.h>

static uint64_t rotate(uint64_t x, int n) { return x << n | x >> (64 - n); }

/* For each x a bijection of the two words: what differed before differs afterwards. */
void tern_key_add(struct tern_key *k, uint64_t x)
{
    x *= 0x9e3779b97f4a7c15u;
    x ^= x >> 29;
    k->word[0] = rotate(k->word[0] ^ x, 23) * 0xd1342543de82ef95u;
    k->word[1] = rotate(k->word[1] + x, 41) * 0xff51afd7ed558ccdu + k->word[0];
}

void tern_key_add_bytes(struct tern_key *k, const void *data, size_t size)
{
    const char *p = data;
    uint64_t x;
    tern_key_add(k, size);
    for (; size >= sizeof(x); size -= sizeof(x), p += sizeof(x)) {
        memcpy(&x, p, sizeof(x));
        tern_key_add(k, x);
    }
    x = 0;
    if (size)
        memcpy(&x, p, size);
    tern_key_add(k, x);
}

void tern_key_add_text(struct tern_key *k, const char *s) { tern_key_add_bytes(k, s ? s : "", s ? strlen(s) : 0); }

struct tern_key tern_key_finish(struct tern_key k)
{
    for (int i = 0; i < 4; i++) {
        tern_key_add(&k, (uint64_t)i);
        k.word[0] ^= k.word[1] >> 32;
        k.word[1] ^= k.word[0] >> 32;
    }
    return k;
}

const char *tern_key_text(struct tern_key key, char out[TERN_KEY_TEXT])
{
    snprintf(out, TERN_KEY_TEXT, "%016llx%016llx", (unsigned long long)key.word[0], (unsigned long long)key.word[1]);
    return out;
}

void tern_key_add_meta(struct tern_key *k, const struct tern_meta *m)
{
    tern_key_add(k, (uint64_t)m->dtype << 32 | (uint64_t)m->ndim);
    for (int i = 0; i < m->ndim; i++) {
        tern_key_add(k, (uint64_t)m->shape[i]);
        tern_key_add(k, (uint64_t)m->stride[i]);
    }
}

void tern_key_add_desc(struct tern_key *k, const struct tern_op_desc *d)
{
    tern_key_add(k, (uint64_t)d->op << 32 | (uint64_t)d->n_in);
    for (int i = 0; i < d->n_in; i++) {
        tern_key_add(k, (uint64_t)d->present[i] << 1 | d->constant[i]);
        if (d->present[i])
            tern_key_add_meta(k, &d->in[i]);
    }
    tern_key_add_meta(k, &d->out);
    tern_key_add_bytes(k, &d->attrs, tern_op_get(d->op).attrs_size); /* 8-byte fields */
    tern_key_add(k, (uint64_t)d->n_post);
    for (int i = 0; i < d->n_post; i++) {
        tern_key_add(k, (uint64_t)d->post[i].op);
        tern_key_add(k, (uint64_t)d->post[i].input);
        tern_key_add_bytes(k, &d->post[i].value, sizeof(d->post[i].value));
    }
    if (!d->pre.num_groups)
        return;
    tern_key_add(k, (uint64_t)d->pre.num_groups);
    tern_key_add(k, (uint64_t)d->pre.silu);
    tern_key_add(k, (uint64_t)d->pre.input);
    tern_key_add_bytes(k, &d->pre.eps, sizeof(d->pre.eps));
}
