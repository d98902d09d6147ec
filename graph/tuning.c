/* What measurements say of a plan's steps. */
#include <stdlib.h>
#include <string.h>

#include "core/context.h"
#include "graph/plan.h"
#include "ops/tuner.h"

uint64_t tern_plan_tuned(const struct tern_plan *p)
{
    struct tern_tuner *t = tern_tuner_get(p->ctx);
    struct tern_key key = {{5, 6}};
    bool any = false;
    for (int i = 0; t && i < p->n_steps; i++) {
        const struct tern_op_desc *d = p->steps[i].desc;
        const struct tern_tuned *e = p->steps[i].kernel ? tern_tuner_find(p->ctx, t, d) : NULL;
        const struct tern_kernel *usual = e ? tern_kernel_choose_planned(p->ctx, p->device, d) : NULL;
        if (!usual || !strcmp(usual->name, e->kernel))
            continue;
        tern_key_add(&key, (uint64_t)i);
        tern_key_add_text(&key, e->kernel);
        any = true;
    }
    return any ? tern_key_finish(key).word[0] : 0;
}

struct found {
    const struct tern_tuned *tuned;
    const struct tern_op_desc *d;
    int steps;
};

/* Most time first. */
static int order(const void *a, const void *b)
{
    const struct found *x = a, *y = b;
    double s = (double)x->tuned->time * x->steps, t = (double)y->tuned->time * y->steps;
    return s > t ? -1 : s < t;
}

static int find(const struct tern_plan *p, struct tern_tuner *t, struct found *list)
{
    int n = 0;
    for (int i = 0; i < p->n_steps; i++) {
        const struct tern_tuned *e = p->steps[i].kernel ? tern_tuner_find(p->ctx, t, p->steps[i].desc) : NULL;
        int at = 0;
        while (at < n && list[at].tuned != e)
            at++;
        if (e && at == n)
            list[n++] = (struct found){.tuned = e, .d = p->steps[i].desc};
        if (e)
            list[at].steps++;
    }
    return n;
}

enum tern_status tern_plan_tuning(const struct tern_plan *plan, void (*tell)(void *user, const struct tern_tuned_step *step), void *user)
{
    char output[TERN_META_TEXT];
    if (!tern_can_tell(plan ? plan->ctx : NULL, tell))
        return TERN_E_INVALID;
    struct tern_tuner *t = plan->device == plan->ctx->own ? tern_tuner_get(plan->ctx) : NULL;
    struct found *list = t ? tern_calloc(plan->ctx, (size_t)plan->n_steps + 1, sizeof(*list)) : NULL;
    int n = list ? find(plan, t, list) : 0;
    if (n)
        qsort(list, (size_t)n, sizeof(*list), order);
    for (int i = 0; i < n; i++) {
        const struct tern_tuned *e = list[i].tuned;
        const struct tern_tuned_step s = {.op = tern_op_get(list[i].d->op).name,
                                          .output = tern_meta_text(&list[i].d->out, output),
                                          .steps = list[i].steps,
                                          .kernel = e->kernel,
                                          .usual = e->usual,
                                          .seconds = (double)e->time * 1e-9,
                                          .usual_seconds = (double)e->usual_time * 1e-9};
        const struct tern_scope_stack scopes = tern_scopes_aside(plan->ctx);
        tell(user, &s);
        tern_scopes_back(plan->ctx, &scopes, "plan: a callback");
    }
    tern_free(plan->ctx, list);
    return tern_error_status(plan->ctx);
}
