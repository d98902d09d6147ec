/* Plans on disk: what is loaded does what was saved, what is damaged is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <tern/ops.h>

#include "core/context.h"
#include "graph/file.h"
#include "plan_help.h"
#include "plan_use.h"
#include "support.h"

#define GRAPHS 180

struct text {
    char data[1 << 16];
    size_t length;
};

static void append(void *user, const char *line)
{
    struct text *t = user;
    t->length += (size_t)snprintf(t->data + t->length, sizeof(t->data) - t->length, "%s\n", line);
    assert_true(t->length < sizeof(t->data));
}

static char *describe(const struct tern_plan *p, struct text *t)
{
    t->length = 0;
    tern_graph_print(tern_plan_graph(p), append, t);
    tern_plan_print_memory(p, append, t);
    return t->data;
}

/* Facts, text, values, and the file that the other one would give. */
static void assert_equal_plans(struct planned *a, struct tern_plan *pa, struct planned *b, struct tern_plan *pb)
{
    static struct text ta, tb;
    struct tern_plan_facts fa = tern_plan_facts(pa), fb = tern_plan_facts(pb);
    int64_t na, nb;
    assert_int_equal(fa.launches, fb.launches);
    assert_int_equal(fa.prepared, fb.prepared);
    assert_int_equal(fa.arena, fb.arena);
    assert_int_equal(fa.least_arena, fb.least_arena);
    assert_string_equal(describe(pa, &ta), describe(pb, &tb));
    for (int s = 0; s < fa.launches; s++)
        assert_ptr_equal(pa->steps[s].kernel, pb->steps[s].kernel);
    float *va = plan_values(a, pa, &na), *vb = plan_values(b, pb, &nb);
    assert_int_equal(na, nb);
    assert_memory_equal(va, vb, (size_t)na * sizeof(*va));
    free(va);
    free(vb);
}

static void saved_plans_come_back(void **state)
{
    static const char *const without[] = {NULL, NULL, "all", "prepare", "fuse,cse", "dce"};
    struct tern_context *one = support_context(), *two = support_context();
    struct plan_folder f = plan_folder_open();
    int references = 0, prepared = 0, posts = 0;
    for (uint64_t seed = 0; seed < GRAPHS; seed++) {
        size_t size, again;
        struct planned a = plan_open(one, seed, without[seed % 6]), b = plan_open(two, seed, "all");
        assert_int_equal(tern_plan_save(a.plan, f.path), TERN_OK);
        struct tern_plan *p = tern_plan_load(two, f.path);
        if (!p)
            fail_msg("graph %d: %s", (int)seed, tern_error(two));
        assert_true(tern_plan_facts(p).compile_time > 0);
        assert_equal_plans(&a, a.plan, &b, p);
        for (int s = 0; s < p->n_steps; s++) {
            references += !p->steps[s].kernel;
            posts += (int)p->steps[s].desc->n_post;
        }
        prepared += p->facts.prepared;
        uint8_t *first = plan_bytes(f.path, &size);
        assert_int_equal(tern_plan_save(p, f.path), TERN_OK);
        uint8_t *second = plan_bytes(f.path, &again);
        assert_int_equal(size, again);
        assert_memory_equal(first, second, size);
        assert_int_equal(plan_folder_count(&f), 1);
        free(first);
        free(second);
        tern_plan_unref(&p);
        plan_close(&a);
        plan_close(&b);
    }
    print_message("%d steps by reference, %d prepared nodes, %d posts\n", references, prepared, posts);
    assert_true(references > 20 && prepared > 10 && posts > 20);
    plan_folder_close(&f);
    tern_context_destroy(&one);
    tern_context_destroy(&two);
}

/* Workspaces are for each thread: what is loaded is laid out as if it were compiled there. */
static void other_threads_lay_out_anew(void **state)
{
    struct tern_context *one = support_context(), *three = tern_context_create(&(struct tern_context_params){.threads = 3});
    struct plan_folder f = plan_folder_open();
    int differ = 0;
    for (uint64_t seed = 0; seed < 30; seed++) {
        struct planned a = plan_open(one, seed, NULL), b = plan_open(three, seed, NULL);
        assert_int_equal(tern_plan_save(a.plan, f.path), TERN_OK);
        struct tern_plan *p = tern_plan_load(three, f.path);
        assert_non_null(p);
        differ += a.plan->facts.arena != p->facts.arena;
        assert_equal_plans(&b, b.plan, &b, p);
        tern_plan_unref(&p);
        plan_close(&a);
        plan_close(&b);
    }
    assert_true(differ > 5);
    plan_folder_close(&f);
    tern_context_destroy(&one);
    tern_context_destroy(&three);
}

/* Kernels may keep packed forms of constants that count as such. */
static void constants_stay_constant(void **state)
{
    struct tern_context *ctx = support_context();
    struct plan_folder f = plan_folder_open();
    struct tern_random_graph r = tern_random_graph_make(ctx, 1, 1);
    struct tern_plan *p = plan_two(ctx, &r);
    for (int constant = 0; constant < 2; constant++) {
        int found = 0;
        for (int i = 0; i < p->graph->n_values; i++)
            if (p->graph->values[i].kind == TERN_VALUE_CONSTANT)
                p->graph->values[i].tensor->constant = constant;
        assert_int_equal(tern_plan_save(p, f.path), TERN_OK);
        struct tern_plan *q = tern_plan_load(ctx, f.path);
        assert_non_null(q);
        for (int i = 0; i < q->graph->n_values; i++)
            if (q->graph->values[i].kind == TERN_VALUE_CONSTANT) {
                assert_int_equal(q->graph->values[i].tensor->constant, constant);
                assert_true(*(const float *)tern_tensor_host(q->graph->values[i].tensor) == 3);
                found++;
            }
        assert_int_equal(found, 1);
        tern_plan_unref(&q);
    }
    tern_plan_unref(&p);
    tern_random_graph_close(&r);
    plan_folder_close(&f);
    tern_context_destroy(&ctx);
}

/* The last line of defence: a binding refuses what is not prepared as its steps expect it. */
static void bindings_check_what_is_prepared(void **state)
{
    struct tern_context *ctx = support_context();
    struct tern_random_graph r = tern_random_graph_make(ctx, 1, 1);
    struct tern_plan *p = plan_two(ctx, &r);
    struct tern_binding *b = tern_plan_bind(p, r.weights);
    assert_non_null(b);
    plan_set_strides(p, plan_node(p, TERN_OP_tanh), 1, 3);
    assert_null(tern_plan_bind(p, r.weights));
    support_error(ctx, TERN_E_INTERNAL, "tanh is prepared in another order");
    tern_binding_unref(&b);
    tern_plan_unref(&p);
    tern_random_graph_close(&r);
    tern_context_destroy(&ctx);
}

/* On the null device there are no values; what is saved still comes back. */
static void null_plans_come_back(void **state)
{
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.device = "null"});
    struct plan_folder f = plan_folder_open();
    struct tern_random_graph r = tern_random_graph_make(ctx, 1, 1);
    struct tern_plan *p = plan_two(ctx, &r);
    assert_int_equal(tern_plan_save(p, f.path), TERN_OK);
    struct tern_plan *q = tern_plan_load(ctx, f.path);
    assert_non_null(q);
    assert_int_equal(p->facts.launches, q->facts.launches);
    assert_int_equal(p->facts.arena, q->facts.arena);
    tern_plan_unref(&p);
    tern_plan_unref(&q);
    tern_random_graph_close(&r);
    plan_folder_close(&f);
    tern_context_destroy(&ctx);
}

/* Every allocation of save and load fails once: a status, no leak, no file; the next try works. */
static void faults_are_statuses(void **state)
{
    struct support_allocator m = {0};
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = 1, .allocator = support_failing(&m)});
    struct plan_folder f = plan_folder_open();
    int faults = 0;
    for (uint64_t seed = 0; seed < 10; seed++) {
        struct planned c = plan_open(ctx, seed, NULL);
        bool failed = true;
        for (long n = 1; failed; n++) {
            m.fail_at = m.count + n;
            enum tern_status st = tern_plan_save(c.plan, f.path);
            m.fail_at = 0;
            failed = st != TERN_OK;
            assert_int_equal(st, failed ? TERN_E_NO_MEMORY : TERN_OK);
            assert_int_equal(tern_error_status(ctx), st);
            assert_int_equal(plan_folder_count(&f), !failed);
            tern_error_clear(ctx);
            faults += failed;
        }
        failed = true;
        for (long n = 1; failed; n++) {
            long live = m.live;
            m.fail_at = m.count + n;
            struct tern_plan *p = tern_plan_load(ctx, f.path);
            m.fail_at = 0;
            failed = p == NULL;
            assert_int_equal(tern_error_status(ctx), failed ? TERN_E_NO_MEMORY : TERN_OK);
            tern_error_clear(ctx);
            tern_plan_unref(&p);
            tern_memory_trim(ctx);
            assert_true(m.live <= live + 1); /* the scope's list of tensors grows once */
            faults += failed;
        }
        plan_close(&c);
        unlink(f.path);
    }
    print_message("%d faults\n", faults);
    assert_true(faults > 200);
    tern_context_destroy(&ctx);
    assert_int_equal(m.live, 0);
    plan_folder_close(&f);
}

/* Constants of a device are copied while the file is written: without memory for that it is discarded. */
static void unfinished_files_vanish(void **state)
{
    struct support_allocator m = {0};
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.device = "null", .allocator = support_failing(&m)});
    struct plan_folder f = plan_folder_open();
    struct tern_random_graph r = tern_random_graph_make(ctx, 1, 1);
    struct tern_plan *p = plan_two(ctx, &r);
    int faults = 0;
    for (bool failed = true; failed; faults += failed) {
        m.fail_at = m.count + faults + 1;
        failed = tern_plan_save(p, f.path) != TERN_OK;
        m.fail_at = 0;
        assert_int_equal(tern_error_status(ctx), failed ? TERN_E_NO_MEMORY : TERN_OK);
        assert_int_equal(plan_folder_count(&f), !failed);
        tern_error_clear(ctx);
    }
    assert_int_equal(faults, 5); /* four of the writer, then the constant's copy */
    tern_plan_unref(&p);
    tern_random_graph_close(&r);
    plan_folder_close(&f);
    tern_context_destroy(&ctx);
    assert_int_equal(m.live, 0);
}

static enum tern_status large_constant(void *user, tern_tensor *const *in, tern_tensor **out)
{
    const int64_t *n = user;
    out[0] = tern_mul(in[0], tern_tensor_create(tern_tensor_context(in[0]), TERN_F32, 1, n, NULL));
    return tern_error_status(tern_tensor_context(in[0]));
}

static void what_cannot_be_saved_is_refused(void **state)
{
    struct tern_context *ctx = support_context();
    struct plan_folder f = plan_folder_open();
    const struct tern_graph_input input = {"x", TERN_F32, 1, {1}};
    for (int64_t more = 0; more < 2; more++) {
        int64_t n = ((int64_t)16 << 20) + more;
        struct tern_graph *g = tern_graph_trace(ctx, large_constant, &n, NULL, &input, 1, 1);
        struct tern_plan *p = tern_plan_compile(g, NULL), *q;
        assert_int_equal(tern_plan_save(p, f.path), more ? TERN_E_UNSUPPORTED : TERN_OK);
        if (more)
            support_error(ctx, TERN_E_UNSUPPORTED, "its constants have more than 67108864 bytes");
        else
            assert_non_null(q = tern_plan_load(ctx, f.path));
        if (!more)
            tern_plan_unref(&q);
        unlink(f.path);
        assert_int_equal(plan_folder_count(&f), 0);
        assert_int_equal(tern_plan_save(NULL, f.path), TERN_E_INVALID);
        assert_int_equal(tern_plan_save(p, NULL), TERN_E_INVALID);
        support_error(ctx, TERN_E_INVALID, "no path to save to");
        if (!more) {
            assert_int_equal(tern_plan_save(p, f.folder), TERN_E_IO);
            support_error(ctx, TERN_E_IO, "found a folder");
            assert_int_equal(tern_plan_save(p, "/nowhere/plan"), TERN_E_IO);
            support_error(ctx, TERN_E_IO, "/nowhere/plan");
        }
        tern_plan_unref(&p);
        tern_graph_destroy(&g);
    }
    assert_null(tern_plan_load(ctx, NULL));
    support_error(ctx, TERN_E_INVALID, "no path");
    assert_null(tern_plan_load(ctx, f.folder));
    support_error(ctx, TERN_E_IO, "found a folder");
    assert_null(tern_plan_load(NULL, f.path));
    plan_folder_close(&f);
    tern_context_destroy(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(saved_plans_come_back),   cmocka_unit_test(other_threads_lay_out_anew),
        cmocka_unit_test(constants_stay_constant), cmocka_unit_test(bindings_check_what_is_prepared),
        cmocka_unit_test(null_plans_come_back),    cmocka_unit_test(faults_are_statuses),
        cmocka_unit_test(unfinished_files_vanish), cmocka_unit_test(what_cannot_be_saved_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
