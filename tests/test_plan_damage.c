/* Plans on disk: what is damaged, forged or foreign is refused, and does no harm. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/context.h"
#include "graph/file.h"
#include "plan_help.h"
#include "plan_use.h"
#include "support.h"

/* A plan of the bytes, or a refusal that names the file; memory comes back. */
static bool try(struct tern_context *ctx, const uint8_t *data, size_t size, bool *ran)
{
    size_t idle = tern_memory_used(ctx);
    uint8_t *copy = malloc(size + 1); /* of that size: what is read behind it is found */
    uint8_t *exact = realloc(copy, size ? size : 1);
    memcpy(exact, data, size);
    struct tern_plan *p = tern_plan_read(ctx, exact, size, "some/plan");
    free(exact);
    bool loaded = p != NULL;
    if (p) {
        assert_false(tern_failed(ctx));
        *ran = plan_use(p) || *ran;
    } else {
        support_error(ctx, TERN_E_FORMAT, "some/plan: the plan cannot be used");
    }
    tern_plan_unref(&p);
    tern_memory_trim(ctx);
    assert_int_equal(tern_memory_used(ctx), idle);
    return loaded;
}

/* The smallest file among some graphs that has a constant, prepared nodes, posts, views, and a node by reference. */
static uint8_t *small_plan(struct tern_context *ctx, size_t *size)
{
    uint8_t *best = NULL;
    for (uint64_t seed = 0; seed < 300; seed++) {
        struct planned p = plan_open(ctx, seed, NULL);
        const struct tern_graph *g = p.plan->graph;
        unsigned found = 0;
        for (int i = 0; i < g->n_nodes; i++)
            if (!g->nodes[i].dead)
                found |= 1u << g->nodes[i].kind | (unsigned)g->nodes[i].prepare << 3 | (unsigned)(g->nodes[i].desc.n_post > 0) << 4;
        for (int i = 0; i < g->n_values; i++)
            found |= (unsigned)(g->values[i].kind == TERN_VALUE_CONSTANT && g->values[i].uses > 0) << 5;
        plan_close(&p);
        if (found != 63)
            continue;
        size_t n;
        uint8_t *data = plan_saved(ctx, seed, &n);
        if (!best || n < *size) {
            free(best);
            best = data;
            *size = n;
        } else {
            free(data);
        }
    }
    assert_non_null(best);
    return best;
}

static void damage_is_refused(void **state)
{
    struct tern_context *ctx = support_context();
    size_t size;
    bool ran = false;
    uint8_t *data = small_plan(ctx, &size);
    print_message("a plan of %zu bytes\n", size);
    assert_true(try(ctx, data, size, &ran) && ran);
    for (size_t i = 0; i < size; i++)
        for (int bit = 0; bit < 9; bit++) {
            uint8_t flip = (uint8_t)(bit < 8 ? 1u << bit : 0xff);
            data[i] ^= flip;
            assert_false(try(ctx, data, size, &ran));
            data[i] ^= flip;
        }
    for (size_t n = 0; n < size; n++)
        assert_false(try(ctx, data, n, &ran));
    for (size_t n = TERN_FILE_HEADER + 4; n < size; n++) { /* cut, but with the right CRC */
        uint8_t *copy = malloc(n);
        memcpy(copy, data, n);
        plan_seal(copy, n);
        assert_false(try(ctx, copy, n, &ran));
        free(copy);
    }
    uint8_t *longer = calloc(1, size + 4);
    memcpy(longer, data, size);
    plan_seal(longer, size + 4);
    assert_false(try(ctx, longer, size + 4, &ran));
    free(longer);
    free(data);
    tern_context_destroy(&ctx);
}

/* Behind a right CRC: refused, or some plan that runs without reading or writing what is not its own. */
static void forged_files_do_no_harm(void **state)
{
    static const uint8_t special[] = {0, 1, 2, 3, 4, 7, 8, 0x7f, 0x80, 0xfe, 0xff};
    struct tern_context *ctx = support_context();
    size_t size;
    long refused = 0, loaded = 0, runs = 0;
    uint64_t random = 1;
    uint8_t *data = small_plan(ctx, &size);
    uint8_t *copy = malloc(size);
    for (size_t i = 0; i < size - 4; i++)
        for (size_t k = 0; k < sizeof(special) + 8; k++) {
            bool ran = false;
            memcpy(copy, data, size);
            copy[i] = k < 8 ? (uint8_t)(copy[i] ^ 1u << k) : special[k - 8];
            plan_seal(copy, size);
            bool good = try(ctx, copy, size, &ran);
            refused += !good;
            loaded += good;
            runs += ran;
        }
    free(copy);
    free(data);
    for (uint64_t seed = 0; seed < 40; seed++) {
        data = plan_saved(ctx, seed, &size);
        copy = malloc(size);
        for (int n = 0; n < 250; n++) {
            bool ran = false;
            memcpy(copy, data, size);
            for (int m = 0; m <= n % 4; m++) {
                random = random * 6364136223846793005u + 1442695040888963407u;
                size_t at = TERN_FILE_HEADER + (size_t)(random >> 33) % (size - 4 - TERN_FILE_HEADER);
                copy[at] =
                    (uint8_t)(random >> 20 & 1 ? special[(random >> 8 & 0xff) % sizeof(special)] : copy[at] ^ 1u << (random >> 8 & 7));
            }
            plan_seal(copy, size);
            bool good = try(ctx, copy, size, &ran);
            refused += !good;
            loaded += good;
            runs += ran;
        }
        free(copy);
        free(data);
    }
    print_message("%ld refused, %ld loaded, %ld of them ran\n", refused, loaded, runs);
    assert_true(refused > 10000 && runs > 1000);
    tern_context_destroy(&ctx);
}

static void bad_block(struct tern_plan *p) { p->blocks[0].offset = p->blocks[1].offset; }
static void bad_alignment(struct tern_plan *p) { p->blocks[0].offset += 32; }
static void bad_arena(struct tern_plan *p) { p->facts.arena -= 64; }
static void bad_arena_and_block(struct tern_plan *p)
{
    p->facts.arena = SIZE_MAX; /* as large as what has no place */
    p->blocks[0].offset += 32;
}
static void bad_dim(struct tern_plan *p) { plan_node(p, TERN_OP_softmax)->desc.attrs.softmax.dim = 4; }
static void bad_completion(struct tern_plan *p) { plan_node(p, TERN_OP_softmax)->desc.attrs.softmax.dim = -3; }
static void bad_padding(struct tern_plan *p) { plan_node(p, TERN_OP_conv2d)->desc.attrs.conv2d.padding[1] = 2; }
static void bad_constant(struct tern_plan *p) { plan_node(p, TERN_OP_softmax)->desc.constant[0] = true; }
static void bad_prepare(struct tern_plan *p) { plan_node(p, TERN_OP_permute)->prepare = true; }
static void bad_view(struct tern_plan *p) { plan_node(p, TERN_OP_permute)->desc.attrs.permute.dims[3] = 2; }
static void bad_outputs(struct tern_plan *p) { p->graph->outputs[1] = p->graph->outputs[0]; }
static void bad_input(struct tern_plan *p) { p->graph->inputs[0] = p->graph->outputs[0]; }
static void bad_reference(struct tern_plan *p) { plan_node(p, TERN_OP_clamp)->kind = TERN_CALL_VIEW; }
static void bad_kernel(struct tern_plan *p)
{
    for (int s = 1; s < p->n_steps; s++)
        if (p->steps[s].desc->op == TERN_OP_neg)
            p->steps[s].kernel = p->steps[0].kernel;
}
static void bad_stride(struct tern_plan *p)
{
    for (int i = 0; i < p->graph->n_values; i++)
        if (p->graph->values[i].kind == TERN_VALUE_INPUT)
            p->graph->values[i].meta.stride[3] = 2;
    plan_node(p, TERN_OP_contiguous)->desc.in[0].stride[3] = 2;
}
static void bad_order(struct tern_plan *p) /* the filter's result, before it is made */
{
    struct tern_node *n = plan_node(p, TERN_OP_contiguous), *later = plan_node(p, TERN_OP_conv2d);
    n->in[0] = later->out;
    n->desc.in[0] = later->desc.out;
}

static void bad_gaps(struct tern_plan *p) { plan_set_strides(p, plan_node(p, TERN_OP_contiguous), 1000, 100); }
static void bad_format(struct tern_plan *p) /* (3, 3), transposed */
{
    assert_true(plan_node(p, TERN_OP_tanh)->prepare);
    plan_set_strides(p, plan_node(p, TERN_OP_tanh), 1, 3);
}

static const struct forgery {
    void (*forge)(struct tern_plan *);
    const char *message;
} forgeries[] = {
    {bad_block, "share no memory"},
    {bad_alignment, "share no memory"},
    {bad_arena, "share no memory"},
    {bad_arena_and_block, "share no memory"},
    {bad_dim, "dim 4 is out of range"},
    {bad_completion, "would complete"},
    {bad_padding, "result: expected"},
    {bad_constant, "counts as constant"},
    {bad_prepare, "prepared from what changes"},
    {bad_view, "dimension 2 is there twice"},
    {bad_outputs, "without memory of its own"},
    {bad_input, "list of inputs"},
    {bad_reference, "not the view"},
    {bad_gaps, "without gaps"},
    {bad_format, "another order of memory"},
    {bad_kernel, "does not run this on device cpu"},
    {bad_stride, "not contiguous"},
    {bad_order, "reads or makes what it cannot"},
};

static void forgeries_are_named(void **state)
{
    struct tern_context *ctx = support_context();
    struct plan_folder f = plan_folder_open();
    struct tern_random_graph r = tern_random_graph_make(ctx, 1, 1);
    for (size_t i = 0; i < sizeof(forgeries) / sizeof(*forgeries); i++) {
        struct tern_plan *p = plan_two(ctx, &r);
        forgeries[i].forge(p);
        assert_int_equal(tern_plan_save(p, f.path), TERN_OK);
        assert_null(tern_plan_load(ctx, f.path));
        support_error(ctx, TERN_E_FORMAT, forgeries[i].message);
        tern_plan_unref(&p);
    }
    tern_random_graph_close(&r);
    plan_folder_close(&f);
    tern_context_destroy(&ctx);
}

static void foreign_plans_are_refused(void **state)
{
    struct tern_context *ctx = support_context(), *null = tern_context_create(&(struct tern_context_params){.device = "null"});
    bool ran;
    size_t size;
    struct plan_folder f = plan_folder_open();
    uint8_t *data = plan_saved(ctx, 1, &size);
    assert_null(tern_plan_load(ctx, f.path));
    support_error(ctx, TERN_E_NOT_FOUND, f.path);
    plan_write(f.path, data, size);
    assert_null(tern_plan_load(null, f.path));
    support_error(null, TERN_E_FORMAT, "another tern, device or processor");
    for (size_t i = 0; i < TERN_FILE_HEADER; i++) {
        data[i] ^= 1;
        plan_seal(data, size);
        assert_false(try(ctx, data, size, &ran));
        plan_write(f.path, data, size);
        assert_null(tern_plan_load(ctx, f.path));
        support_error(ctx, TERN_E_FORMAT, i < 8 ? "this is no plan" : i < 12 ? "version" : "another tern, device or processor");
        data[i] ^= 1;
    }
    free(data);
    plan_folder_close(&f);
    tern_context_destroy(&ctx);
    tern_context_destroy(&null);
}

/* Seeds for tests/fuzz/fuzz_plan.c. */
static int write_corpus(const char *folder)
{
    struct tern_context *ctx = support_context();
    char path[512];
    size_t size;
    uint8_t *data = small_plan(ctx, &size);
    snprintf(path, sizeof(path), "%s/small.plan", folder);
    plan_write(path, data, size);
    free(data);
    for (uint64_t seed = 1; seed < 5; seed++) {
        snprintf(path, sizeof(path), "%s/random-%d.plan", folder, (int)seed);
        data = plan_saved(ctx, seed, &size);
        plan_write(path, data, size);
        free(data);
    }
    tern_context_destroy(&ctx);
    return 0;
}

/* With a folder: writes the fuzz target's corpus there. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(damage_is_refused),
        cmocka_unit_test(forged_files_do_no_harm),
        cmocka_unit_test(forgeries_are_named),
        cmocka_unit_test(foreign_plans_are_refused),
    };
    return argc > 1 ? write_corpus(argv[1]) : cmocka_run_group_tests(tests, NULL, NULL);
}
