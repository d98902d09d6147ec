/* Parity on a device: the networks of every architecture, op by op and as plans, and its pictures, against diffusers and transformers. The
 * argument is the device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "arch_help.h"

#define LIMIT 1e-8

static const char *device;
static struct tern_context *context; /* one for all models, so that each kernel is compiled once; NULL: there is no such device */

/* Without the error of the row before: what fails has its own. */
static struct tern_context *open_or_skip(void)
{
    if (!context) {
        print_message("%s\n", tern_create_error());
        skip();
    }
    tern_error_clear(context);
    return context;
}

static int open_device(void **state)
{
    context = tern_context_create(&(struct tern_context_params){.device = device, .threads = 2});
    return 0;
}

static int close_device(void **state)
{
    tern_context_destroy(&context);
    return 0;
}

struct worst {
    double error;
    char name[128];
    int cases;
};

static void note(struct worst *w, double e, const char *what)
{
    if (!(e <= LIMIT))
        fail_msg("%s on %s: NMSE %.3g, expected at most %g", what, device, e, LIMIT);
    w->cases++;
    if (e >= w->error) {
        w->error = e;
        snprintf(w->name, sizeof(w->name), "%s", what);
    }
}

struct networks {
    struct tern_context *ctx;
    struct tern_pipeline *p;
    const char *model;
    struct worst eager, compiled;
};

static void check_network(void *arg, const char *path, const char *component, const char *name)
{
    struct networks *n = arg;
    char what[128];
    struct golden g = golden_open(n->ctx, path);
    snprintf(what, sizeof(what), "%s %s", n->model, name);
    note(&n->eager, golden_error(n->p, component, &g, what), what);
    strcat(what, ", compiled");
    double e = arch_plan_error(n->p, component, &g, what);
    if (e != -1)
        note(&n->compiled, e, what);
    golden_close(&g);
}

static void model_agrees(void **state)
{
    const struct arch *a = *state;
    struct networks n = {.ctx = open_or_skip(), .model = a->name};
    struct arch_model m = arch_open(n.ctx, a);
    n.p = m.p;
    if (a->networks) {
        golden_each_in(a->networks, check_network, &n);
        print_message("%d runs, worst NMSE %.2g: %s\n", n.eager.cases, n.eager.error, n.eager.name);
        print_message("%d plans, worst NMSE %.2g: %s\n", n.compiled.cases, n.compiled.error, n.compiled.name);
        assert_true(n.compiled.cases >= 1);
    }
    if (a->cases) {
        struct job_worst w = {0};
        arch_check_pictures(n.ctx, m.p, a, &w);
        job_print_worst(&w);
    }
    arch_close(&m);
}

int main(int argc, char **argv)
{
    struct CMUnitTest tests[32];
    device = argc > 1 ? argv[1] : "cpu";
    for (int i = 0; i < arch_count; i++)
        tests[i] = (struct CMUnitTest){archs[i].name, model_agrees, NULL, NULL, (void *)(uintptr_t)&archs[i]};
    return _cmocka_run_group_tests("models", tests, (size_t)arch_count, open_device, close_device);
}
