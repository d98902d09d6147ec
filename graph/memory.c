/* What makes a plan need the memory that it needs, and what would lower that. */
#include <stdio.h>
#include <stdlib.h>

#include "graph/peak.h"

typedef void write_fn(void *user, const char *line);

static double mib(size_t bytes) { return (double)bytes / (1 << 20); }

static const struct tern_node *node_at(const struct tern_plan *p, int step) { return &p->graph->nodes[p->steps[step].node]; }
static const char *op_at(const struct tern_plan *p, int step) { return tern_op_get(node_at(p, step)->desc.op).name; }

static void print_block(const struct tern_plan *p, const struct tern_plan_block *b, write_fn *write, void *user)
{
    char line[256], meta[TERN_META_TEXT];
    const struct tern_node *n = &p->graph->nodes[b->node];
    snprintf(line, sizeof(line), "%9.2f MiB  steps %d..%d  %%%d %s of %s %s", mib(b->size), b->first, b->last, n->out,
             b->scratch ? "scratch" : "result", tern_op_get(n->desc.op).name, tern_meta_text(&n->desc.out, meta));
    write(user, line);
}

/* The blocks of a step, one pass for each size, largest first: without memory of its own. */
static void print_blocks(const struct tern_plan *p, int step, write_fn *write, void *user)
{
    size_t below = SIZE_MAX;
    for (;;) {
        size_t next = 0;
        for (int i = 0; i < p->n_blocks; i++)
            if (tern_block_lives(&p->blocks[i], step) && p->blocks[i].size < below && p->blocks[i].size > next)
                next = p->blocks[i].size;
        if (!next)
            return;
        for (int i = 0; i < p->n_blocks; i++)
            if (tern_block_lives(&p->blocks[i], step) && p->blocks[i].size == next)
                print_block(p, &p->blocks[i], write, user);
        below = next;
    }
}

static void print_relief(const struct tern_plan *p, const struct tern_relief *r, write_fn *write, void *user)
{
    char line[384];
    int peak = r->now.step;
    if (r->scratch) {
        snprintf(line, sizeof(line), "without the scratch of step %d (%.2f MiB of %s) at most %.2f MiB would be alive, at step %d", peak,
                 mib(r->scratch), tern_step_kernel(&p->steps[peak]), mib(r->without_scratch.alive), r->without_scratch.step);
        write(user, line);
    }
    if (r->waiting >= 0) {
        const struct tern_plan_block *b = &p->blocks[r->waiting];
        snprintf(line, sizeof(line), "without %%%d (%.2f MiB), which waits from step %d to step %d for %%%d %s, %.2f MiB, at step %d",
                 p->graph->nodes[b->node].out, mib(b->size), r->from, r->until, node_at(p, r->until)->out, op_at(p, r->until),
                 mib(r->without_waiting.alive), r->without_waiting.step);
        write(user, line);
    }
    if (r->next.step >= 0) {
        snprintf(line, sizeof(line), "no change of step %d alone goes below the %.2f MiB of step %d: %%%d %s", peak, mib(r->next.alive),
                 r->next.step, node_at(p, r->next.step)->out, op_at(p, r->next.step));
        write(user, line);
    }
}

void tern_plan_print_memory(const struct tern_plan *p, write_fn *write, void *user)
{
    char line[256];
    if (!tern_can_tell(p ? p->ctx : NULL, write) || !p->n_steps)
        return;
    struct tern_relief r = tern_plan_relief(p);
    snprintf(line, sizeof(line), "%9.2f MiB  alive at step %d of %d: %%%d %s", mib(r.now.alive), r.now.step, p->n_steps,
             node_at(p, r.now.step)->out, op_at(p, r.now.step));
    write(user, line);
    print_blocks(p, r.now.step, write, user);
    print_relief(p, &r, write, user);
}
