/* Runs whose launches are those of the run before: the queue captures and replays them. */
#include <string.h>

#include "core/context.h"
#include "graph/plan.h"

/* False when a tensor's memory is not the device's own, or there are too many: whether it is the same again cannot be told. */
static bool make_key(const struct tern_run *r, struct tern_run_key *key)
{
    const struct tern_graph *g = r->plan->graph;
    memset(key, 0, sizeof(*key));
    key->binding = r->binding->id;
    if (g->n_inputs + g->n_outputs > TERN_CAPTURED_IO)
        return false;
    for (int i = 0; i < g->n_inputs + g->n_outputs; i++) {
        const tern_tensor *t = i < g->n_inputs ? r->inputs[i] : r->outputs[i - g->n_inputs];
        if (!t->buffer->id || t->buffer->device != r->plan->device)
            return false;
        key->at[i].buffer = t->buffer->id;
        key->at[i].offset = t->offset;
    }
    return true;
}

/* Writes the launches of this run down. What fails here fails in a plain run, too, and is told there. Nobody is asked meanwhile whether to
 * cancel: what that callback launches would be written down, too. */
static void capture(struct tern_run *r)
{
    struct tern_queue *q = r->plan->device->queue;
    enum tern_status st = q->fns->capture_begin(q);
    if (!st) {
        r->captured = true;
        st = tern_run_steps(r);
        r->captured = false;
        r->last->capture = q->fns->capture_end(q);
        if (st)
            tern_last_run_drop_capture(r->last);
    }
    if (!r->last->capture)
        tern_error_clear_own(r->plan->ctx);
}

/* The first run with a key is a plain one, which also compiles what is not yet; the second is captured, all further ones replay it. */
enum tern_status tern_run_or_replay(struct tern_run *r)
{
    struct tern_queue *q = r->plan->device->queue;
    struct tern_run_key key;
    if (!q->fns->capture_begin || !r->plan->same_launches || r->observer || !make_key(r, &key))
        return tern_run_steps(r);
    struct tern_last_run *last = r->last;
    bool again = !memcmp(&key, &last->key, sizeof(key));
    if (!again)
        tern_last_run_drop_capture(last);
    last->key = key;
    enum tern_status st = tern_check_cancel(r->plan->ctx);
    if (st)
        return st;
    if (again && !last->capture)
        capture(r);
    st = last->capture ? q->fns->replay(q, last->capture) : TERN_OK;
    if (last->capture && (st || !last->capture->stale))
        return st;
    tern_last_run_drop_capture(last);
    return tern_run_steps(r);
}
