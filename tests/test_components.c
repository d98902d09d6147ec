/* Parity: every component of the small models against transformers and diffusers, at every CPU level, with one and two
 * threads, and with every op computed by its reference. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "model_help.h"
#include "ops/dispatch.h"
#include "support.h"

#define LIMIT 1e-8

struct setting {
    const char *level; /* NULL: the best */
    int threads;
    bool reference;
};

static const char *const models[] = {"sd1", "sd1-heads", "sd1-inpaint", "sd1-mini", "sd2", "sdxl"};

struct run {
    struct tern_context *ctx;
    struct tern_pipeline *p;
    const char *model;
    double worst;
    char worst_name[128];
    int cases;
};

static void check_case(void *arg, const char *path, const char *component, const char *name)
{
    struct run *r = arg;
    char what[128];
    snprintf(what, sizeof(what), "%s %s", r->model, name);
    struct golden g = golden_open(r->ctx, path);
    double e = golden_error(r->p, component, &g, what);
    if (!(e <= LIMIT))
        fail_msg("%s: NMSE %.3g, expected at most %g", what, e, LIMIT);
    if (e >= r->worst) {
        r->worst = e;
        snprintf(r->worst_name, sizeof(r->worst_name), "%s", what);
    }
    r->cases++;
    golden_close(&g);
}

static void components_agree(void **state)
{
    const struct setting *s = *state;
    char path[PATH_SIZE];
    struct run r = {.ctx = model_context(s->level, s->threads)};
    if (s->reference)
        assert_int_equal(tern_dispatch_force(r.ctx, "reference"), TERN_OK);
    for (size_t i = 0; i < sizeof(models) / sizeof(*models); i++) {
        r.model = models[i];
        r.p = model_load(r.ctx, model_path(models[i], path));
        golden_each(models[i], check_case, &r);
        tern_pipeline_destroy(&r.p);
    }
    assert_int_equal(r.cases, 3 * 17 + 4 + 8 + 10);
    print_message("%d cases, worst NMSE %.2g: %s\n", r.cases, r.worst, r.worst_name);
    tern_context_destroy(&r.ctx);
}

#define SETTING(title, ...)                                                    \
    {                                                                          \
        title, components_agree, NULL, NULL, &(struct setting) { __VA_ARGS__ } \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        SETTING("best level, 1 thread", .threads = 1),
        SETTING("best level, 2 threads", .threads = 2),
        SETTING(MODEL_USUAL_LEVEL ", 1 thread", .level = MODEL_USUAL_LEVEL, .threads = 1),
        SETTING(MODEL_USUAL_LEVEL ", 2 threads", .level = MODEL_USUAL_LEVEL, .threads = 2),
        SETTING("scalar, 1 thread", .level = "scalar", .threads = 1),
        SETTING("scalar, 2 threads", .level = "scalar", .threads = 2),
        SETTING("references", .threads = 1, .reference = true),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
