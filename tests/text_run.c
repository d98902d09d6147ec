/* From a call to the launches of its kernel texts. */
#include "tests/text_run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "conformance/suite.h"
#include "core/context.h"

struct tern_launch_limits text_limits_full(void)
{
    return (
        struct tern_launch_limits){.max_group = 256, .shared_bytes = 32 << 10, .max_groups = 65535, .storage16 = true, .storage8 = true};
}

struct tern_launch_limits text_limits_subgroups(int size)
{
    struct tern_launch_limits limits = text_limits_full();
    limits.subgroup = size;
    limits.dot_product = true;
    return limits;
}

struct tern_launch_limits text_limits_least(void)
{
    return (struct tern_launch_limits){.max_group = 64, .shared_bytes = 16 << 10, .max_groups = 65535};
}

struct tern_launch_limits text_limits_matrix(void)
{
    struct tern_launch_limits limits = text_limits_full();
    limits.shared_bytes = 48 << 10;
    limits.matrix_subgroup = 32;
    limits.matrix_f16 = limits.matrix_bf16 = limits.matrix_i8 = true;
    return limits;
}

/* ---- cache ---- */

static uint64_t hash_of(const char *s)
{
    uint64_t h = 14695981039346656037u; /* FNV-1a */
    for (; *s; s++)
        h = (h ^ (unsigned char)*s) * 1099511628211u;
    return h;
}

void *text_cache_find(const struct text_cache *c, const char *source)
{
    uint64_t h = hash_of(source);
    for (int i = 0; i < c->n; i++)
        if (c->entries[i].hash == h && !strcmp(c->entries[i].source, source))
            return c->entries[i].kernel;
    return NULL;
}

bool text_cache_add(struct text_cache *c, const char *source, void *kernel)
{
    if (c->n == c->capacity) {
        int capacity = c->capacity ? 2 * c->capacity : 64;
        void *more = realloc(c->entries, (size_t)capacity * sizeof(*c->entries));
        if (!more)
            return false;
        c->entries = more;
        c->capacity = capacity;
    }
    char *copy = strdup(source);
    if (!copy)
        return false;
    c->entries[c->n++] = (struct text_cache_entry){hash_of(source), copy, kernel};
    return true;
}

void text_cache_clear(struct text_cache *c, void (*destroy)(void *kernel))
{
    for (int i = 0; i < c->n; i++) {
        destroy(c->entries[i].kernel);
        free(c->entries[i].source);
    }
    free(c->entries);
    *c = (struct text_cache){.n = 0};
}

/* ---- running ---- */

/* Where an argument lies; its offset goes into the parameters, as a backend that binds whole buffers does it. */
static struct text_buffer bind(const struct tern_kernel_args *a, struct tern_launch *l, int slot, void *workspace, size_t workspace_size)
{
    int what = l->slot[slot].what;
    if (what == TERN_SLOT_WORKSPACE)
        return (struct text_buffer){workspace, 0, workspace_size};
    const struct tern_arg *arg = what == TERN_SLOT_OUT ? &a->out : &a->in[what];
    const struct tern_meta *m = what == TERN_SLOT_OUT ? &a->desc->out : &a->desc->in[what];
    l->params.head.offset[slot] += (int32_t)(arg->offset / tern_dtype_size(m->dtype));
    return (struct text_buffer){arg->buffer->host, arg->offset, arg->offset + (size_t)tern_meta_span(m) * tern_dtype_size(m->dtype)};
}

static bool run_launch(struct text_executor *e, const struct tern_kernel_args *a, struct tern_launches *all, int at, void *workspace,
                       char *message, size_t size)
{
    struct tern_launch *l = &all->launch[at];
    struct text_buffer buffers[TERN_MAX_SLOTS];
    char *source = tern_text_source(a->ctx, e->language, l->text, all->defines[at]);
    if (!source) {
        snprintf(message, size, "%s", tern_error(a->ctx));
        return false;
    }
    /* inputs are copies that end at a whole word, as buffers of devices do */
    void *copies[TERN_MAX_SLOTS] = {NULL};
    bool good = true;
    for (int i = 0; i < l->n_slots; i++) {
        buffers[i] = bind(a, l, i, workspace, all->workspace);
        if (l->slot[i].what >= TERN_SLOT_OUT)
            continue;
        copies[i] = calloc(1, (buffers[i].end + 3) / 4 * 4 + !buffers[i].end);
        good = good && copies[i];
        if (copies[i])
            memcpy(copies[i], buffers[i].base, buffers[i].end);
        buffers[i].base = copies[i];
    }
    char reason[900] = "";
    good = good && e->run(e->user, source, l, buffers, reason, sizeof(reason));
    for (int i = 0; i < l->n_slots; i++)
        free(copies[i]);
    if (!good)
        snprintf(message, size, "text %s: %s", l->text, reason[0] ? reason : "failed");
    e->launches++;
    tern_free(a->ctx, source);
    return good;
}

/* The families with hundreds of variants. */
static bool has_many(const char *text) { return !strcmp(text, "elementwise") || !strcmp(text, "copy") || !strcmp(text, "reduce"); }

/* Of those one in `one_in`, and the first of each op, so that none is left out. */
static bool wants(struct text_executor *e, enum tern_op op, const struct tern_launches *all)
{
    uint64_t variant = 0;
    bool chosen = true;
    for (int i = 0; i < all->n && e->one_in; i++)
        if (has_many(all->launch[i].text)) {
            const uint64_t h = hash_of(all->defines[i]);
            chosen = chosen && h % (uint64_t)e->one_in == 0;
            variant = variant * 31 + (h | 1);
        }
    if (variant && !e->first[op])
        e->first[op] = variant;
    return chosen || variant == e->first[op];
}

static size_t workspace_of(const struct tern_op_desc *d, struct tern_launch_limits limits, bool vectors)
{
    static struct tern_launches launches; /* large */
    limits.vectors = vectors;
    return tern_launches_make(d, &limits, &launches) ? launches.workspace : 0;
}

bool text_run_call(const struct tern_kernel_args *a, void *user, char *message, size_t size)
{
    struct text_executor *e = user;
    static struct tern_launches launches; /* large */
    message[0] = 0;
    struct tern_launch_limits limits = e->limits;
    limits.vectors = a->out.offset % 16 == 0;
    for (int i = 0; i < a->desc->n_in; i++)
        limits.vectors = limits.vectors && a->in[i].offset % 16 == 0;
    if (!tern_launches_make(a->desc, &limits, &launches))
        return false;
    if (workspace_of(a->desc, limits, false) >
        workspace_of(a->desc, limits, true)) { /* it is taken before it is known where arguments begin */
        snprintf(message, size, "needs more workspace where arguments are not aligned");
        return false;
    }
    if (!wants(e, a->desc->op, &launches))
        return false;
    void *workspace = malloc(launches.workspace + 1);
    bool good = workspace != NULL;
    if (good)
        memset(workspace, 0xFF, launches.workspace);
    for (int i = 0; i < launches.n && good; i++)
        good = run_launch(e, a, &launches, i, workspace, message, size);
    if (good && e->only_compiles)
        tern_op_get(a->desc->op).reference(a);
    free(workspace);
    return good;
}

struct text_counts text_run_table(struct text_executor *e)
{
    struct text_counts counts = {.passed = 0};
    e->launches = 0;
    struct tern_context *ctx = tern_context_create(&(const struct tern_context_params){.threads = 1});
    struct tern_conformance *c = tern_conformance_create(ctx, &(const struct tern_conformance_params){.kernel = "reference_strides"});
    const char *only = getenv("TERN_TEXT_CASES"); /* for a person: the beginning of a case's name */
    if (!c) {
        print_error("%s\n", ctx ? tern_error(ctx) : "no context");
        counts.failed = 1;
    } else {
        c->runner = text_run_call;
        c->runner_user = e;
    }
    for (int i = 0; c && i < tern_conformance_facts(c).checks; i++) {
        struct tern_conformance_check check = tern_conformance_get(c, i);
        struct tern_conformance_outcome out;
        bool is_error = json_object_get(tern_table_case(&c->table, c->checks[i].item), "error") != NULL;
        if (check.stage != TERN_CONFORMANCE_OPS || is_error || (only && strncmp(check.name, only, strlen(only))))
            continue;
        if (e->one_order)
            c->orders = c->orders == TERN_ORDERS_FIRST ? TERN_ORDERS_REVERSED : TERN_ORDERS_FIRST;
        const int before = e->launches;
        if (tern_conformance_run(c, i, &out))
            fail_msg("%s", tern_error(ctx));
        counts.op_launches[tern_op_find(check.group)] += e->launches - before;
        counts.passed += out.result == TERN_CONFORMANCE_PASSED;
        counts.skipped += out.result == TERN_CONFORMANCE_SKIPPED;
        if (out.result == TERN_CONFORMANCE_FAILED && ++counts.failed <= 20)
            print_error("%s: %s: %s\n", e->name, check.name, out.message);
    }
    tern_conformance_destroy(&c);
    tern_context_destroy(&ctx);
    print_message("%s: %d cases passed, %d skipped, %d failed, %d launches\n", e->name, counts.passed, counts.skipped, counts.failed,
                  e->launches);
    counts.launches = e->launches;
    return counts;
}

void text_run_all(struct text_executor *e)
{
    struct text_counts table = text_run_table(e), more = text_run_more(e);
    assert_int_equal(table.failed + more.failed, 0);
    if (!(table.launches + more.launches)) /* empty results pass without */
        fail_msg("%s: nothing was launched", e->name);
}
