/* The pickle machine: a stack, a memo and one switch over the opcodes of protocols 0 to 5 that torch.save emits. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "core/context.h"
#include "core/number.h"
#include "models/files/pickle_machine.h"
#include "models/files/weights.h"

/* Longest number that is written as text. */
#define TEXT_NUMBER 64

static bool is_utf8(const uint8_t *s, size_t n)
{
    while (n) {
        utf8proc_int32_t c;
        utf8proc_ssize_t k = utf8proc_iterate(s, n > 4 ? 4 : (utf8proc_ssize_t)n, &c);
        if (k <= 0)
            return false;
        s += k;
        n -= (size_t)k;
    }
    return true;
}

/* A str or bytes whose length stands before it in `length_bytes` bytes. */
static bool push_text(struct tern_pickle *p, enum tern_pickle_type type, int length_bytes)
{
    uint64_t n;
    const uint8_t *d = tern_pickle_take_number(p, length_bytes, &n) ? tern_pickle_take(p, n) : NULL;
    if (!d)
        return false;
    if (type == TERN_PICKLE_STR && !is_utf8(d, (size_t)n)) {
        tern_pickle_fail(p, "a text is not valid UTF-8");
        return false;
    }
    return tern_pickle_push(p, tern_pickle_text_new(p, type, d, (size_t)n));
}

static bool push_int(struct tern_pickle *p, enum tern_pickle_type type, int64_t x)
{
    value *v = tern_pickle_value_new(p, type);
    if (v)
        v->integer = x;
    return tern_pickle_push(p, v);
}

static bool push_float(struct tern_pickle *p, double x)
{
    value *v = tern_pickle_value_new(p, TERN_PICKLE_FLOAT);
    if (v)
        v->number = x;
    return tern_pickle_push(p, v);
}

/* An int in two's complement; those above 64 bits (the magic number of old files) stay bytes. */
static bool push_long(struct tern_pickle *p, int length_bytes)
{
    uint64_t n, x = 0;
    const uint8_t *d = tern_pickle_take_number(p, length_bytes, &n) ? tern_pickle_take(p, n) : NULL;
    if (!d)
        return false;
    if (n > 8)
        return tern_pickle_push(p, tern_pickle_text_new(p, TERN_PICKLE_BIG_INT, d, (size_t)n));
    for (uint64_t i = n; i-- > 0;)
        x = x << 8 | d[i];
    if (n && n < 8 && d[n - 1] & 0x80)
        x |= ~(uint64_t)0 << 8 * n;
    return push_int(p, TERN_PICKLE_INT, (int64_t)x);
}

/* The text opcodes I, L and F of protocol 0; I00 and I01 are booleans. */
static bool push_text_number(struct tern_pickle *p, uint8_t op)
{
    char text[TEXT_NUMBER], *end;
    size_t n;
    const char *line = tern_pickle_take_line(p, &n);
    if (!line)
        return false;
    if (op == 'L' && n && line[n - 1] == 'L')
        n--;
    if (n && n < sizeof(text)) {
        memcpy(text, line, n);
        text[n] = 0;
        if (op == 'I' && n == 2 && text[0] == '0' && (text[1] == '0' || text[1] == '1'))
            return push_int(p, TERN_PICKLE_BOOL, text[1] - '0');
        errno = 0;
        double f = op == 'F' ? tern_number_parse(text, &end) : 0;
        long long i = op == 'F' ? 0 : strtoll(text, &end, 10);
        if (end == text + n && (op == 'F' || !errno))
            return op == 'F' ? push_float(p, f) : push_int(p, TERN_PICKLE_INT, i);
    }
    tern_pickle_fail(p, "a number that stands as text is not valid");
    return false;
}

static bool push_binfloat(struct tern_pickle *p)
{
    const uint8_t *d = tern_pickle_take(p, 8);
    uint64_t bits = 0;
    double x;
    if (!d)
        return false;
    for (int i = 0; i < 8; i++)
        bits = bits << 8 | d[i];
    memcpy(&x, &bits, 8);
    return push_float(p, x);
}

static bool memo_text(struct tern_pickle *p, bool put)
{
    char text[TEXT_NUMBER], *end;
    size_t n;
    const char *line = tern_pickle_take_line(p, &n);
    if (!line)
        return false;
    if (n && n < sizeof(text) && line[0] >= '0' && line[0] <= '9') {
        memcpy(text, line, n);
        text[n] = 0;
        unsigned long long index = strtoull(text, &end, 10);
        if (end == text + n)
            return put ? tern_pickle_memo_put(p, index) : tern_pickle_memo_get(p, index);
    }
    tern_pickle_fail(p, "a memo index is not valid");
    return false;
}

static bool memo_binary(struct tern_pickle *p, int bytes, bool put)
{
    uint64_t index;
    return tern_pickle_take_number(p, bytes, &index) && (put ? tern_pickle_memo_put(p, index) : tern_pickle_memo_get(p, index));
}

/* The values above the mark as a tuple, list, dict or set. */
static bool push_marked(struct tern_pickle *p, enum tern_pickle_type type)
{
    value **items;
    size_t n;
    if (!tern_pickle_pop_mark(p, &items, &n))
        return false;
    if (type == TERN_PICKLE_DICT && n % 2) {
        tern_pickle_fail(p, "a dict has a key without a value");
        return false;
    }
    return tern_pickle_push(p, tern_pickle_items_new(p, type, items, n));
}

static bool push_tuple(struct tern_pickle *p, size_t n)
{
    if (p->depth - tern_pickle_floor(p) < n) {
        tern_pickle_fail(p, "the stack is empty; the file is damaged");
        return false;
    }
    p->depth -= n;
    return tern_pickle_push(p, tern_pickle_items_new(p, TERN_PICKLE_TUPLE, p->stack + p->depth, n));
}

/* Adds items to the container on top of the stack. */
static bool add_items(struct tern_pickle *p, enum tern_pickle_type type, value **items, size_t n)
{
    value *v = tern_pickle_top(p);
    if (v && (v->type != type || (type == TERN_PICKLE_DICT && n % 2)))
        tern_pickle_fail(p, "items are added to something that does not take them");
    return v && v->type == type && !(type == TERN_PICKLE_DICT && n % 2) && !tern_pickle_items_add(p, v, items, n);
}

static bool add_marked(struct tern_pickle *p, enum tern_pickle_type type)
{
    value **items;
    size_t n;
    return tern_pickle_pop_mark(p, &items, &n) && add_items(p, type, items, n);
}

static bool add_last(struct tern_pickle *p, enum tern_pickle_type type, size_t n)
{
    if (p->depth - tern_pickle_floor(p) <= n) {
        tern_pickle_fail(p, "the stack is empty; the file is damaged");
        return false;
    }
    p->depth -= n;
    return add_items(p, type, p->stack + p->depth, n);
}

static value *take_global(struct tern_pickle *p)
{
    size_t module_size, name_size;
    const char *module = tern_pickle_take_line(p, &module_size), *name = module ? tern_pickle_take_line(p, &name_size) : NULL;
    return name ? tern_pickle_global(p, module, module_size, name, name_size) : NULL;
}

static bool push_stack_global(struct tern_pickle *p)
{
    const value *name = tern_pickle_pop(p), *module = name ? tern_pickle_pop(p) : NULL;
    if (module && (name->type != TERN_PICKLE_STR || module->type != TERN_PICKLE_STR))
        tern_pickle_fail(p, "the name of a global is no text");
    if (!module || name->type != TERN_PICKLE_STR || module->type != TERN_PICKLE_STR)
        return false;
    return tern_pickle_push(p, tern_pickle_global(p, module->text.data, module->text.size, name->text.data, name->text.size));
}

/* REDUCE, NEWOBJ: callable, arguments. NEWOBJ_EX: class, arguments, keyword arguments, which nothing here takes. */
static bool push_call(struct tern_pickle *p, bool keywords)
{
    if (keywords && !tern_pickle_pop(p))
        return false;
    const value *args = tern_pickle_pop(p), *callable = args ? tern_pickle_pop(p) : NULL;
    return callable && tern_pickle_push(p, tern_pickle_call(p, callable, args));
}

/* INST: names in the opcode; OBJ: the class is the first value above the mark. */
static bool push_instance(struct tern_pickle *p, bool inst)
{
    value **items, *callable = inst ? take_global(p) : NULL;
    size_t n;
    if ((inst && !callable) || !tern_pickle_pop_mark(p, &items, &n))
        return false;
    if (!inst && !n) {
        tern_pickle_fail(p, "an object has no class");
        return false;
    }
    if (!inst)
        callable = items[0];
    value *args = tern_pickle_items_new(p, TERN_PICKLE_TUPLE, items + !inst, n - !inst);
    return args && tern_pickle_push(p, tern_pickle_call(p, callable, args));
}

static bool build(struct tern_pickle *p)
{
    const value *state = tern_pickle_pop(p);
    value *object = state ? tern_pickle_top(p) : NULL;
    return object && tern_pickle_set_state(p, object, state);
}

static bool push_persistent(struct tern_pickle *p)
{
    const value *id = tern_pickle_pop(p);
    value *v = id ? tern_pickle_persistent(p, id) : NULL;
    value **s = v ? tern_pickle_reserve(p, p->storages, p->storage_count, &p->storage_capacity, sizeof(*s)) : NULL;
    if (!s)
        return false;
    p->storages = s;
    p->storages[p->storage_count++] = v;
    return tern_pickle_push(p, v);
}

static bool pop_to_mark(struct tern_pickle *p)
{
    value **items;
    size_t n;
    return tern_pickle_pop_mark(p, &items, &n);
}

static bool refuse(struct tern_pickle *p, uint8_t op)
{
    tern_pickle_fail(p, "opcode 0x%02x is not one that torch.save writes; the file is damaged or refused", op);
    return false;
}

static bool protocol(struct tern_pickle *p)
{
    const uint8_t *d = tern_pickle_take(p, 1);
    if (d && *d > 5)
        tern_pickle_fail(p, "protocol %d, expected at most 5", *d);
    return d && *d <= 5;
}

/* POP removes the mark when there is nothing above it. */
static bool pop_one(struct tern_pickle *p)
{
    if (p->mark_count && p->depth == tern_pickle_floor(p))
        return pop_to_mark(p);
    return tern_pickle_pop(p);
}

static bool push_small(struct tern_pickle *p, int bytes)
{
    uint64_t x;
    return tern_pickle_take_number(p, bytes, &x) && push_int(p, TERN_PICKLE_INT, bytes == 4 ? (int32_t)(uint32_t)x : (int64_t)x);
}

/* Runs one opcode (names as in pickletools); false with the error recorded. */
static bool step(struct tern_pickle *p, uint8_t op)
{
    /* clang-format off */
    switch (op) {
    case 0x80: return protocol(p);                                                     /* PROTO */
    case 0x95: return tern_pickle_take(p, 8);                                          /* FRAME: its length does not matter */
    case '(': return tern_pickle_push_mark(p);                                         /* MARK */
    case '0': return pop_one(p);                                                       /* POP */
    case '1': return pop_to_mark(p);                                                   /* POP_MARK */
    case '2': return tern_pickle_push(p, tern_pickle_top(p));                          /* DUP */
    case 'N': return tern_pickle_push(p, tern_pickle_value_new(p, TERN_PICKLE_NONE));  /* NONE */
    case 0x88: return push_int(p, TERN_PICKLE_BOOL, 1);                                /* NEWTRUE */
    case 0x89: return push_int(p, TERN_PICKLE_BOOL, 0);                                /* NEWFALSE */
    case 'J': return push_small(p, 4);                                                 /* BININT */
    case 'K': return push_small(p, 1);                                                 /* BININT1 */
    case 'M': return push_small(p, 2);                                                 /* BININT2 */
    case 0x8a: return push_long(p, 1);                                                 /* LONG1 */
    case 0x8b: return push_long(p, 4);                                                 /* LONG4 */
    case 'I': case 'L': case 'F': return push_text_number(p, op);                      /* INT, LONG, FLOAT */
    case 'G': return push_binfloat(p);                                                 /* BINFLOAT */
    case 'U': return push_text(p, TERN_PICKLE_STR, 1);                                 /* SHORT_BINSTRING: Python 2 */
    case 'T': return push_text(p, TERN_PICKLE_STR, 4);                                 /* BINSTRING: Python 2 */
    case 0x8c: return push_text(p, TERN_PICKLE_STR, 1);                                /* SHORT_BINUNICODE */
    case 'X': return push_text(p, TERN_PICKLE_STR, 4);                                 /* BINUNICODE */
    case 0x8d: return push_text(p, TERN_PICKLE_STR, 8);                                /* BINUNICODE8 */
    case 'C': return push_text(p, TERN_PICKLE_BYTES, 1);                               /* SHORT_BINBYTES */
    case 'B': return push_text(p, TERN_PICKLE_BYTES, 4);                               /* BINBYTES */
    case 0x8e: case 0x96: return push_text(p, TERN_PICKLE_BYTES, 8);                   /* BINBYTES8, BYTEARRAY8 */
    case ')': return tern_pickle_push(p, tern_pickle_value_new(p, TERN_PICKLE_TUPLE)); /* EMPTY_TUPLE */
    case ']': return tern_pickle_push(p, tern_pickle_value_new(p, TERN_PICKLE_LIST));  /* EMPTY_LIST */
    case '}': return tern_pickle_push(p, tern_pickle_value_new(p, TERN_PICKLE_DICT));  /* EMPTY_DICT */
    case 0x8f: return tern_pickle_push(p, tern_pickle_value_new(p, TERN_PICKLE_SET));  /* EMPTY_SET */
    case 't': return push_marked(p, TERN_PICKLE_TUPLE);                                /* TUPLE */
    case 'l': return push_marked(p, TERN_PICKLE_LIST);                                 /* LIST */
    case 'd': return push_marked(p, TERN_PICKLE_DICT);                                 /* DICT */
    case 0x91: return push_marked(p, TERN_PICKLE_SET);                                 /* FROZENSET */
    case 0x85: case 0x86: case 0x87: return push_tuple(p, (size_t)op - 0x84);          /* TUPLE1, TUPLE2, TUPLE3 */
    case 'a': return add_last(p, TERN_PICKLE_LIST, 1);                                 /* APPEND */
    case 'e': return add_marked(p, TERN_PICKLE_LIST);                                  /* APPENDS */
    case 's': return add_last(p, TERN_PICKLE_DICT, 2);                                 /* SETITEM */
    case 'u': return add_marked(p, TERN_PICKLE_DICT);                                  /* SETITEMS */
    case 0x90: return add_marked(p, TERN_PICKLE_SET);                                  /* ADDITEMS */
    case 'p': return memo_text(p, true);                                               /* PUT */
    case 'q': return memo_binary(p, 1, true);                                          /* BINPUT */
    case 'r': return memo_binary(p, 4, true);                                          /* LONG_BINPUT */
    case 0x94: return tern_pickle_memo_put(p, p->memo_count);                          /* MEMOIZE */
    case 'g': return memo_text(p, false);                                              /* GET */
    case 'h': return memo_binary(p, 1, false);                                         /* BINGET */
    case 'j': return memo_binary(p, 4, false);                                         /* LONG_BINGET */
    case 'c': return tern_pickle_push(p, take_global(p));                              /* GLOBAL */
    case 0x93: return push_stack_global(p);                                            /* STACK_GLOBAL */
    case 'R': case 0x81: return push_call(p, false);                                   /* REDUCE, NEWOBJ */
    case 0x92: return push_call(p, true);                                              /* NEWOBJ_EX */
    case 'i': return push_instance(p, true);                                           /* INST */
    case 'o': return push_instance(p, false);                                          /* OBJ */
    case 'b': return build(p);                                                         /* BUILD */
    case 'Q': return push_persistent(p);                                               /* BINPERSID */
    default: return refuse(p, op); /* text strings, PERSID, EXT1-4, buffers: torch.save writes none */
    }
    /* clang-format on */
}

struct tern_pickle *tern_pickle_load(struct tern_context *ctx, const uint8_t *data, size_t size, size_t *at, const char *where)
{
    struct tern_pickle *p = tern_calloc(ctx, 1, sizeof(*p));
    if (!p)
        return NULL;
    p->ctx = ctx;
    p->where = where;
    p->data = data;
    p->size = size;
    p->at = p->start = p->op = *at;
    p->stack = tern_pickle_reserve(p, NULL, 0, &p->stack_capacity, sizeof(*p->stack)); /* never NULL: an empty stack is a place, too */
    bool ok = p->stack != NULL;
    while (ok) {
        p->op = p->at;
        const uint8_t *op = tern_pickle_take(p, 1);
        ok = op;
        if (ok && *op == '.') { /* STOP */
            p->root = tern_pickle_pop(p);
            break;
        }
        ok = ok && step(p, *op);
    }
    *at = p->at;
    if (!p->root)
        tern_pickle_free(&p);
    return p;
}
