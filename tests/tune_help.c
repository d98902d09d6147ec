/* Help for the tests of tuning. */
#include "tune_help.h"

#include <ftw.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <tern/ops.h>

#include "core/context.h"
#include "support.h"

struct tune tune_open(void)
{
    struct tune f = {.folder = "/tmp/tern-tune-XXXXXX"};
    assert_non_null(mkdtemp(f.folder));
    snprintf(f.file, sizeof(f.file), "%s/file", f.folder);
    trials_reset();
    return f;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw) { return remove(path); }

void tune_close(struct tune *f) { assert_int_equal(nftw(f->folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS), 0); }

static void log_line(enum tern_log_level level, const char *message, void *user)
{
    struct tune *f = user;
    if (level < TERN_LOG_WARN)
        return;
    f->warnings++;
    snprintf(f->last, sizeof(f->last), "%s", message);
}

static bool cancelled(void *user) { return ((struct tune *)user)->cancel; }

struct tern_context *tune_context_of(struct tune *f, const struct tern_context_params *params)
{
    struct tern_context_params p = *params;
    p.device = p.device ? p.device : "trial";
    p.threads = p.threads ? p.threads : 1;
    p.cache_dir = f->folder;
    p.log = log_line;
    p.cancel = cancelled;
    p.user = f;
    struct tern_context *ctx = tern_context_create(&p);
    if (!ctx && !p.allocator.alloc)
        fail_msg("%s", tern_create_error());
    return ctx;
}

struct tern_context *tune_context(struct tune *f, enum tern_tune_level level)
{
    return tune_context_of(f, &(struct tern_context_params){.tune = {.level = level, .cache = f->file}});
}

static enum tern_status forward(void *user, tern_tensor *const *in, tern_tensor **out)
{
    out[0] = tern_abs(in[0]);
    return tern_error_status(user);
}

struct tern_graph *tune_graph(struct tern_context *ctx)
{
    const struct tern_graph_input x = {"x", TERN_F32, 1, {TUNE_ELEMENTS}};
    return tern_graph_trace(ctx, forward, ctx, NULL, &x, 1, 1);
}

struct tern_plan *tune_plan(struct tern_context *ctx, const struct tern_plan_params *params)
{
    struct tern_graph *g = tune_graph(ctx);
    struct tern_plan *p = g ? tern_plan_compile(g, params) : NULL;
    tern_graph_destroy(&g);
    return p;
}

const char *tune_kernel(const struct tern_plan *p, int i)
{
    assert_non_null(p);
    assert_true(i < p->n_steps && p->steps[i].kernel);
    return p->steps[i].kernel->name;
}

void tune_check(struct tern_plan *p)
{
    const int64_t n = TUNE_ELEMENTS;
    tern_tensor *out = NULL, *x;
    int64_t count;
    tern_scope_begin(p->ctx);
    x = support_noise(p->ctx, 3, 1, &n, 1, TERN_F32);
    struct tern_binding *b = tern_plan_bind(p, NULL);
    assert_non_null(b);
    assert_int_equal(tern_plan_run(b, &x, &out), TERN_OK);
    float *from = support_values(x, &count), *to = support_values(out, &count);
    for (int64_t i = 0; i < n; i++)
        assert_true(to[i] == fabsf(from[i]));
    free(from);
    free(to);
    tern_binding_unref(&b);
    tern_scope_end(p->ctx, NULL);
}
