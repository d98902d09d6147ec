/* A plan's memory as JSON: every block of the arena, the peak, and what would lower it. */
#include "core/context.h"
#include "graph/peak.h"
#include "graph/report.h"

static int set_number(json_t *o, const char *key, int64_t x) { return json_object_set_new(o, key, json_integer(x)); }

static int set_size(json_t *o, const char *key, size_t x) { return set_number(o, key, (int64_t)x); }

static int set_peak(json_t *o, const char *key, const struct tern_peak *peak)
{
    json_t *inner = json_object();
    return json_object_set_new(o, key, inner) || set_number(inner, "step", peak->step) || set_size(inner, "alive", peak->alive);
}

static json_t *block_json(const struct tern_plan *p, const struct tern_plan_block *b)
{
    const struct tern_node *n = &p->graph->nodes[b->node];
    const char *weight = tern_node_weight(p->graph, n);
    json_t *o = json_object();
    int bad = set_size(o, "offset", b->at) | set_size(o, "size", b->size) | set_number(o, "first", b->first) |
              set_number(o, "last", b->last) | set_number(o, "node", n->out);
    bad |= json_object_set_new(o, "op", json_string(tern_op_get(n->desc.op).name)) | tern_report_meta(o, &n->desc.out);
    bad |= json_object_set_new(o, "weight", weight ? tern_json_text(p->ctx, weight) : json_null());
    bad |= json_object_set_new(o, "scratch", json_boolean(b->scratch));
    if (bad)
        json_decref(o);
    return bad ? NULL : o;
}

static int set_blocks(json_t *o, const struct tern_plan *p)
{
    json_t *blocks = json_array();
    int bad = json_object_set_new(o, "blocks", blocks);
    for (int i = 0; !bad && i < p->n_blocks; i++)
        bad |= json_array_append_new(blocks, block_json(p, &p->blocks[i]));
    return bad;
}

static int set_relief(json_t *o, const struct tern_plan *p)
{
    struct tern_relief r = tern_plan_relief(p);
    if (!p->n_steps)
        return json_object_set_new(o, "peak", json_null());
    int bad = set_peak(o, "peak", &r.now);
    if (r.scratch) {
        bad |= set_peak(o, "without_scratch", &r.without_scratch);
        json_t *s = json_object_get(o, "without_scratch");
        bad |= set_size(s, "size", r.scratch) | json_object_set_new(s, "kernel", json_string(tern_step_kernel(&p->steps[r.now.step])));
    }
    if (r.waiting >= 0) {
        bad |= set_peak(o, "without_waiting", &r.without_waiting);
        json_t *w = json_object_get(o, "without_waiting");
        bad |= set_size(w, "size", p->blocks[r.waiting].size) | set_number(w, "block", r.waiting) | set_number(w, "from", r.from) |
               set_number(w, "until", r.until);
    }
    if (r.next.step >= 0)
        bad |= set_peak(o, "next", &r.next);
    return bad;
}

enum tern_status tern_plan_print_memory_json(const struct tern_plan *p, void (*write)(void *user, const char *line), void *user)
{
    if (!tern_can_tell(p ? p->ctx : NULL, write))
        return TERN_E_INVALID;
    json_t *o = json_object();
    int bad = set_size(o, "arena", p->facts.arena) | set_size(o, "least_arena", p->facts.least_arena) | set_number(o, "steps", p->n_steps);
    bad |= set_relief(o, p) | set_blocks(o, p);
    return tern_report_send(p->ctx, o, bad, write, user);
}
