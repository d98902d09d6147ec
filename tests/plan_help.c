/* Help for the tests of plans on disk. */
#include "plan_help.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include <cmocka.h>
#include <tern/context.h>
#include <tern/ops.h>

struct planned plan_open(struct tern_context *ctx, uint64_t seed, const char *without)
{
    struct planned p = {.ctx = ctx, .r = tern_random_graph_make(ctx, seed, 1)};
    tern_scope_begin(ctx);
    tern_random_graph_inputs(&p.r, 5, p.in);
    p.graph = tern_graph_trace(ctx, tern_random_graph_fn, &p.r, p.r.weights, p.r.inputs, p.r.n_inputs, p.r.n_outputs);
    p.plan = tern_plan_compile(p.graph, &(struct tern_plan_params){.without = without});
    assert_non_null(p.plan);
    return p;
}

void plan_close(struct planned *p)
{
    tern_scope_end(p->ctx, NULL);
    tern_plan_unref(&p->plan);
    tern_graph_destroy(&p->graph);
    tern_random_graph_close(&p->r);
}

float *plan_values(struct planned *p, struct tern_plan *plan, int64_t *n)
{
    tern_tensor *out[TERN_GRAPH_MAX_IO] = {NULL};
    struct tern_binding *b = tern_plan_bind(plan, p->r.weights);
    assert_int_equal(tern_plan_run(b, p->in, out), TERN_OK);
    *n = 0;
    for (int i = 0; i < p->r.n_outputs; i++)
        *n += tern_tensor_numel(out[i]);
    float *values = malloc((size_t)*n * sizeof(*values) + 1), *to = values;
    for (int i = 0; i < p->r.n_outputs; i++) {
        int64_t count = tern_tensor_numel(out[i]);
        assert_int_equal(tern_tensor_read(out[i], TERN_F32, to, (size_t)count * sizeof(*to)), TERN_OK);
        to += count;
    }
    tern_binding_unref(&b);
    return values;
}

static tern_tensor *weight(const struct tern_random_graph *r, const char *name) { return tern_weights_get(r->weights, name); }
static tern_tensor *filter(const struct tern_random_graph *r) { return tern_weights_get(r->weights, "conv.0.0.weight"); }

/* picture (1, 4, 3, 3): by a filter, plus a folded constant, silu, times a prepared matrix; a softmax; both returned */
static enum tern_status two_results(void *user, tern_tensor *const *in, tern_tensor **out)
{
    const struct tern_random_graph *r = user;
    tern_tensor *y = tern_silu(
        tern_add(tern_conv2d(in[0], filter(r), NULL, .padding = 1), tern_mul_scalar(tern_tensor_scalar(r->ctx, TERN_F32, 2), 1.5)));
    tern_tensor *prepared = tern_tanh(tern_slice(tern_slice(weight(r, "linear.0.0.weight"), 0, 0, 3, 1), 1, 0, 3, 1));
    out[0] = tern_softmax(tern_neg(tern_mul(y, prepared)), 1);
    out[1] = tern_clamp(tern_permute(y, 4, (const int[]){0, 2, 3, 1}), -1, 1);
    return tern_error_status(r->ctx);
}

struct tern_plan *plan_two(struct tern_context *ctx, struct tern_random_graph *r)
{
    const struct tern_graph_input input = {"x", TERN_F32, 4, {1, 4, 3, 3}};
    struct tern_graph *g = tern_graph_trace(ctx, two_results, r, r->weights, &input, 1, 2);
    struct tern_plan *p = tern_plan_compile(g, NULL);
    assert_non_null(p);
    tern_graph_destroy(&g);
    return p;
}

struct tern_node *plan_node(struct tern_plan *p, enum tern_op op)
{
    for (int i = 0; i < p->graph->n_nodes; i++)
        if (!p->graph->nodes[i].dead && p->graph->nodes[i].desc.op == op)
            return &p->graph->nodes[i];
    fail_msg("no node of op %d", (int)op);
    return NULL;
}

void plan_set_strides(struct tern_plan *p, struct tern_node *n, int64_t first, int64_t second)
{
    n->desc.out.stride[0] = first;
    n->desc.out.stride[1] = second;
    p->graph->values[n->out].meta = n->desc.out;
    for (int i = 0; i < p->graph->n_nodes; i++)
        for (int k = 0; k < TERN_MAX_INPUTS; k++)
            if (p->graph->nodes[i].in[k] == n->out)
                p->graph->nodes[i].desc.in[k] = n->desc.out;
}

struct plan_folder plan_folder_open(void)
{
    struct plan_folder f = {.folder = "/tmp/tern-plan-XXXXXX"};
    assert_non_null(mkdtemp(f.folder));
    snprintf(f.path, sizeof(f.path), "%s/plan", f.folder);
    return f;
}

int plan_folder_count(const struct plan_folder *f)
{
    int n = 0;
    DIR *d = opendir(f->folder);
    assert_non_null(d);
    for (struct dirent *e = readdir(d); e; e = readdir(d))
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

void plan_folder_close(struct plan_folder *f)
{
    unlink(f->path);
    assert_int_equal(rmdir(f->folder), 0);
}

uint8_t *plan_bytes(const char *path, size_t *size)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    *size = (size_t)ftell(f);
    rewind(f);
    uint8_t *data = malloc(*size + 1);
    assert_int_equal(fread(data, 1, *size, f), *size);
    fclose(f);
    return data;
}

void plan_write(const char *path, const uint8_t *data, size_t size)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
}

void plan_seal(uint8_t *data, size_t size)
{
    uint32_t crc = (uint32_t)crc32_z(0, data, size - 4);
    for (size_t i = 0; i < 4; i++)
        data[size - 4 + i] = (uint8_t)(crc >> 8 * i);
}

uint8_t *plan_saved(struct tern_context *ctx, uint64_t seed, size_t *size)
{
    struct plan_folder f = plan_folder_open();
    struct planned p = plan_open(ctx, seed, NULL);
    assert_int_equal(tern_plan_save(p.plan, f.path), TERN_OK);
    uint8_t *data = plan_bytes(f.path, size);
    plan_close(&p);
    plan_folder_close(&f);
    return data;
}
