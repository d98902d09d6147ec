/* Which step needs most memory, and what it would need if something of it were not there. */
#include "graph/peak.h"

/* What is left out of a sum. */
struct hidden {
    int scratch_of;         /* step; -1 */
    int block, from, until; /* between the two steps, both excluded; block -1 */
    int step;               /* the whole step; -1 */
};
static const struct hidden nothing = {.scratch_of = -1, .block = -1, .step = -1};

static size_t alive_at(const struct tern_plan *p, int step, const struct hidden *h)
{
    size_t sum = 0;
    for (int i = 0; i < p->n_blocks; i++) {
        const struct tern_plan_block *b = &p->blocks[i];
        if (!tern_block_lives(b, step) || (step == h->scratch_of && b->scratch) || (i == h->block && h->from < step && step < h->until))
            continue;
        sum += b->size;
    }
    return sum;
}

static struct tern_peak peak_of(const struct tern_plan *p, const struct hidden *h)
{
    struct tern_peak peak = {.step = -1};
    for (int s = 0; s < p->n_steps; s++) {
        size_t alive = s == h->step ? 0 : alive_at(p, s, h);
        if (s != h->step && (peak.step < 0 || alive > peak.alive))
            peak = (struct tern_peak){s, alive};
    }
    return peak;
}

static bool lies_in(const struct tern_ref *r, const struct tern_plan_block *b)
{
    return r->place == TERN_PLACE_ARENA && r->offset >= b->offset && r->offset - b->offset < b->size;
}

/* Whether the step reads or writes the block; blocks that live at one step do not overlap. */
static bool step_uses(const struct tern_step *step, const struct tern_plan_block *b)
{
    bool uses = lies_in(&step->out, b) || lies_in(&step->workspace, b) || lies_in(&step->packed, b);
    for (int k = 0; k < TERN_MAX_INPUTS; k++)
        uses = uses || lies_in(&step->in[k], b);
    return uses;
}

static int largest_waiting(const struct tern_plan *p, int step)
{
    int largest = -1;
    for (int i = 0; i < p->n_blocks; i++) {
        const struct tern_plan_block *b = &p->blocks[i];
        if (b->first < step && step < b->last && !step_uses(&p->steps[step], b) && (largest < 0 || b->size > p->blocks[largest].size))
            largest = i;
    }
    return largest;
}

struct tern_relief tern_plan_relief(const struct tern_plan *p)
{
    struct tern_relief r = {.waiting = -1};
    if (!p->n_steps)
        return r;
    struct hidden h = nothing;
    r.now = peak_of(p, &h);
    h.scratch_of = r.now.step;
    r.scratch = r.now.alive - alive_at(p, r.now.step, &h);
    r.without_scratch = peak_of(p, &h);
    h = nothing;
    h.step = r.now.step;
    r.next = peak_of(p, &h);
    r.waiting = largest_waiting(p, r.now.step);
    if (r.waiting < 0)
        return r;
    const struct tern_plan_block *b = &p->blocks[r.waiting];
    for (r.from = r.now.step; r.from > b->first && !step_uses(&p->steps[r.from], b);)
        r.from--;
    for (r.until = r.now.step; r.until < b->last && !step_uses(&p->steps[r.until], b);)
        r.until++;
    h = nothing;
    h.block = r.waiting;
    h.from = r.from;
    h.until = r.until;
    r.without_waiting = peak_of(p, &h);
    return r;
}

const char *tern_node_weight(const struct tern_graph *g, const struct tern_node *n)
{
    for (int k = 0; k < n->desc.n_in; k++) {
        int v = n->in[k];
        while (v >= 0 && g->values[v].kind == TERN_VALUE_RESULT && g->nodes[g->values[v].node].prepare)
            v = g->nodes[g->values[v].node].in[0];
        if (v >= 0 && g->values[v].kind == TERN_VALUE_WEIGHT)
            return g->values[v].name;
    }
    return NULL;
}

const char *tern_step_kernel(const struct tern_step *step) { return step->kernel ? step->kernel->name : "reference"; }
