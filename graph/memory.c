/* What makes a plan need the memory that it needs. */
#include <stdio.h>
#include <stdlib.h>

#include "graph/plan.h"

static size_t live_at(const struct tern_plan *p, int step)
{
    size_t sum = 0;
    for (int i = 0; i < p->n_blocks; i++)
        if (p->blocks[i].first <= step && step <= p->blocks[i].last)
            sum += p->blocks[i].size;
    return sum;
}

/* The step at which most is alive. */
static int peak_step(const struct tern_plan *p)
{
    int peak = 0;
    size_t most = 0;
    for (int s = 0; s < p->n_steps; s++) {
        size_t live = live_at(p, s);
        if (live > most) {
            most = live;
            peak = s;
        }
    }
    return peak;
}

static void print_block(const struct tern_plan *p, const struct tern_plan_block *b, void (*write)(void *, const char *), void *user)
{
    char line[256], meta[TERN_META_TEXT];
    const struct tern_node *n = &p->graph->nodes[b->node];
    snprintf(line, sizeof(line), "%9.2f MiB  steps %d..%d  %%%d %s of %s %s", (double)b->size / (1 << 20), b->first, b->last, n->out,
             b->scratch ? "scratch" : "result", tern_op_get(n->desc.op).name, tern_meta_text(&n->desc.out, meta));
    write(user, line);
}

void tern_plan_print_memory(const struct tern_plan *p, void (*write)(void *user, const char *line), void *user)
{
    char line[256];
    int peak = peak_step(p);
    if (!p->n_steps)
        return;
    const struct tern_node *n = &p->graph->nodes[p->steps[peak].node];
    snprintf(line, sizeof(line), "%9.2f MiB  alive at step %d of %d: %%%d %s", (double)live_at(p, peak) / (1 << 20), peak, p->n_steps,
             n->out, tern_op_get(n->desc.op).name);
    write(user, line);
    size_t below = SIZE_MAX; /* one pass for each size, largest first: without memory of its own */
    for (;;) {
        size_t next = 0;
        for (int i = 0; i < p->n_blocks; i++)
            if (p->blocks[i].first <= peak && peak <= p->blocks[i].last && p->blocks[i].size < below && p->blocks[i].size > next)
                next = p->blocks[i].size;
        if (!next)
            return;
        for (int i = 0; i < p->n_blocks; i++)
            if (p->blocks[i].first <= peak && peak <= p->blocks[i].last && p->blocks[i].size == next)
                print_block(p, &p->blocks[i], write, user);
        below = next;
    }
}
