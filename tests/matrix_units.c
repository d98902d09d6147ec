/* Matrix units in software. */
#include "tests/matrix_units.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cuda/half.h"

enum { SIDE = 16, SIZE = SIDE * SIDE };

struct matrix {
    int word, kind; /* what filled it */
    union {
        float at[SIZE];
        int32_t ints[SIZE]; /* of int8, and their sums */
    };
};

/* A word as the first item said it. */
struct said {
    struct tern_host_matrix m;
    int x; /* the number of the matrix */
    int items;
    float stored[SIZE]; /* of a store */
};

struct matrix_subgroup {
    struct said *said; /* since the last barrier */
    struct matrix *matrices;
    int n_said, room_said, n_matrices, room_matrices;
};

static int n_subgroups(const struct matrix_units *u) { return u->subgroup ? (u->n_items + u->subgroup - 1) / u->subgroup : 0; }

void matrix_units_clear(struct matrix_units *u)
{
    for (int i = 0; u->subgroups && i < n_subgroups(u); i++) {
        free(u->subgroups[i].said);
        free(u->subgroups[i].matrices);
    }
    free(u->subgroups);
    *u = (struct matrix_units){.early = u->early};
}

void matrix_units_start(struct matrix_units *u, int n_items, int subgroup)
{
    if (n_items != u->n_items || subgroup != u->subgroup) {
        matrix_units_clear(u);
        u->n_items = n_items;
        u->subgroup = subgroup;
        u->subgroups = calloc((size_t)n_subgroups(u) + 1, sizeof(*u->subgroups));
        if (!u->subgroups || n_items > MATRIX_MOST_ITEMS)
            abort();
    }
    memset(u->words, 0, sizeof(u->words));
    memset(u->matrices, 0, sizeof(u->matrices));
    for (int i = 0; i < n_subgroups(u); i++)
        u->subgroups[i].n_said = u->subgroups[i].n_matrices = 0;
}

/* Room for one more of `size` bytes. */
static void *grow(void *all, int n, int *room, size_t size)
{
    if (n < *room)
        return all;
    *room = 2 * n + 16;
    all = realloc(all, (size_t)*room * size);
    if (!all)
        abort();
    return all;
}

static size_t element(const struct tern_host_matrix *m)
{
    return m->word == TERN_HOST_STORE || m->word == TERN_HOST_LOAD_SUM ? 4 : m->kind & TERN_HOST_I8 ? 1 : 2;
}

static float load(const void *tile, ptrdiff_t i, int kind)
{
    uint16_t bits;
    memcpy(&bits, (const char *)tile + 2 * i, 2);
    return kind & TERN_HOST_BF16 ? half_float((unsigned)bits << 16) : half_to_float(bits);
}

static void fill(struct matrix *x, const struct tern_host_matrix *m)
{
    x->word = m->word;
    x->kind = m->kind;
    for (int row = 0; row < SIDE; row++)
        for (int col = 0; col < SIDE; col++) {
            ptrdiff_t at = m->kind & TERN_HOST_COLUMNS ? (ptrdiff_t)col * m->pitch + row : (ptrdiff_t)row * m->pitch + col;
            if (m->kind & TERN_HOST_I8)
                x->ints[row * SIDE + col] = m->word == TERN_HOST_ZERO       ? 0
                                            : m->word == TERN_HOST_LOAD_SUM ? ((const int32_t *)m->tile)[m->i + at]
                                                                            : ((const int8_t *)m->tile)[m->i + at];
            else
                x->at[row * SIDE + col] = m->word == TERN_HOST_ZERO       ? 0
                                          : m->word == TERN_HOST_LOAD_SUM ? ((const float *)m->tile)[m->i + at]
                                                                          : load(m->tile, m->i + at, m->kind);
        }
}

static void multiply(struct matrix *sum, const struct matrix *a, const struct matrix *b)
{
    for (int row = 0; row < SIDE; row++)
        for (int k = 0; k < SIDE; k++)
            for (int col = 0; col < SIDE; col++)
                if (sum->kind & TERN_HOST_I8)
                    sum->ints[row * SIDE + col] += a->ints[row * SIDE + k] * b->ints[k * SIDE + col];
                else
                    sum->at[row * SIDE + col] += a->at[row * SIDE + k] * b->at[k * SIDE + col];
}

/* Every row of the matrix lies in the array, where hardware can load it: 32 bytes from 32 bytes on, rows 16 bytes apart. */
static const char *check_tile(const struct tern_host_matrix *m, const char *from, const char *to)
{
    ptrdiff_t size = (ptrdiff_t)element(m), begin = (const char *)m->tile - from + m->i * size;
    if (!from)
        return "a matrix unit is given memory that is not shared";
    if (m->i < 0 || m->pitch < SIDE || begin < 0 || begin + ((SIDE - 1) * (ptrdiff_t)m->pitch + SIDE) * size > to - from)
        return "a matrix is outside of the shared array";
    if (begin % 32 || m->pitch * size % 16)
        return "a matrix lies askew";
    return NULL;
}

/* word: what fills a matrix of that use; a sum is made zero, or loaded. */
static bool is_filled(const struct matrix_subgroup *s, int x, int word, int kind)
{
    const struct matrix *m = x > 0 && x <= s->n_matrices ? &s->matrices[x - 1] : NULL;
    return m && (m->word == word || (word == TERN_HOST_ZERO && m->word == TERN_HOST_LOAD_SUM)) &&
           (m->kind & TERN_HOST_COLUMNS) == (kind & TERN_HOST_COLUMNS);
}

static const char *check(const struct matrix_subgroup *s, const struct tern_host_matrix *m, int x, const char *from, const char *to)
{
    switch (m->word) {
    case TERN_HOST_ZERO:
        return NULL;
    case TERN_HOST_MULTIPLY:
        if (!is_filled(s, m->a, TERN_HOST_LOAD_A, m->kind) || !is_filled(s, m->b, TERN_HOST_LOAD_B, m->b_kind) ||
            !is_filled(s, x, TERN_HOST_ZERO, 0) ||
            (s->matrices[m->a - 1].kind ^ s->matrices[m->b - 1].kind) & (TERN_HOST_BF16 | TERN_HOST_I8) ||
            (s->matrices[m->a - 1].kind ^ s->matrices[x - 1].kind) & TERN_HOST_I8)
            return "a matrix unit multiplies what was not filled, or filled otherwise";
        return NULL;
    case TERN_HOST_STORE:
        if (!is_filled(s, x, TERN_HOST_ZERO, 0) || (m->kind ^ s->matrices[x - 1].kind) & TERN_HOST_I8)
            return "a matrix that was not filled is stored, or as another kind";
        return check_tile(m, from, to);
    default:
        return check_tile(m, from, to);
    }
}

static void store(const struct said *said)
{
    float *to = said->m.tile;
    for (int row = 0; row < SIDE; row++)
        memcpy(to + said->m.i + row * said->m.pitch, said->stored + row * SIDE, SIDE * sizeof(float));
}

/* The first item's: all happens now, but stores only if they are early. */
static const char *begin(struct matrix_subgroup *s, bool early, const struct tern_host_matrix *m, int x, const char *from, const char *to)
{
    const char *wrong = check(s, m, x, from, to);
    if (wrong)
        return wrong;
    s->said = grow(s->said, s->n_said, &s->room_said, sizeof(*s->said));
    struct said *said = &s->said[s->n_said++];
    said->m = *m;
    said->x = x;
    said->items = 0;
    if (x > s->n_matrices) {
        s->matrices = grow(s->matrices, s->n_matrices, &s->room_matrices, sizeof(*s->matrices));
        s->n_matrices++;
    }
    struct matrix *to_fill = &s->matrices[x - 1];
    if (m->word == TERN_HOST_MULTIPLY)
        multiply(to_fill, &s->matrices[m->a - 1], &s->matrices[m->b - 1]);
    else if (m->word == TERN_HOST_STORE)
        memcpy(said->stored, to_fill->at, sizeof(said->stored));
    else
        fill(to_fill, m);
    if (m->word == TERN_HOST_STORE && early)
        store(said);
    return NULL;
}

static bool agrees(const struct said *said, const struct tern_host_matrix *m, int x)
{
    const struct tern_host_matrix *n = &said->m;
    return m->word == n->word && x == said->x && m->a == n->a && m->b == n->b && m->kind == n->kind && m->b_kind == n->b_kind &&
           m->tile == n->tile && m->i == n->i && m->pitch == n->pitch && m->line == n->line;
}

const char *matrix_units_word(struct matrix_units *u, int item, const struct tern_host_matrix *m, const void *from, const void *to)
{
    if (!u->subgroup || u->n_items % u->subgroup)
        return "matrix units in a group that has no whole subgroups";
    struct matrix_subgroup *s = &u->subgroups[item / u->subgroup];
    bool new = m->word <= TERN_HOST_LOAD_SUM && !*m->x;
    int x = new ? u->matrices[item] + 1 : *m->x, word = u->words[item]++;
    const char *wrong = word == s->n_said ? begin(s, u->early, m, x, from, to) : NULL;
    if (wrong)
        return wrong;
    if (!agrees(&s->said[word], m, x))
        return "items of a subgroup do different things with matrix units";
    if (new)
        *m->x = ++u->matrices[item];
    if (++s->said[word].items == u->subgroup && m->word == TERN_HOST_STORE && !u->early)
        store(&s->said[word]);
    return NULL;
}

const char *matrix_units_barrier(struct matrix_units *u)
{
    for (int i = 0; u->subgroup && i < u->n_items; i++) {
        if (u->words[i] != u->subgroups[i / u->subgroup].n_said)
            return "matrix units that not all items of a subgroup come to";
        u->words[i] = 0;
    }
    for (int i = 0; i < n_subgroups(u); i++)
        u->subgroups[i].n_said = 0;
    return NULL;
}
