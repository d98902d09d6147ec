/* Plans on disk: reading. A file may hold anything: every number is bounded before it is used, every node checked by the rules of
 * its op (check.c), every place in memory by the layout. */
#include <stdio.h>
#include <string.h>
#include <zlib.h>

#include "core/context.h"
#include "core/files.h"
#include "graph/file.h"

static enum tern_status read_constant(struct tern_file_in *in, const struct tern_meta *m)
{
    int constant = tern_file_count(in, 1, 1);
    uint64_t size = tern_file_number(in, 8);
    if (constant < 0 || size != (uint64_t)tern_meta_span(m) * tern_dtype_size(m->dtype))
        return tern_file_wrong(in, "a constant with another number of bytes than its shape needs");
    const void *data = tern_file_take(in, size);
    if (!data)
        return tern_file_wrong(in, "a constant");
    tern_tensor *t = tern_constant_make(in->ctx, m, constant, data, size);
    if (t)
        tern_graph_add_value(in->graph, TERN_VALUE_CONSTANT, m, NULL, t);
    tern_tensor_unref(&t);
    return tern_error_status(in->ctx);
}

static enum tern_status read_value(struct tern_file_in *in)
{
    char name[TERN_FILE_NAME + 1];
    struct tern_meta m = {.ndim = 0};
    int kind = tern_file_count(in, 1, TERN_FILE_UNUSED);
    if (kind < 0)
        return tern_file_wrong(in, "a kind of value that there is not");
    if (kind == TERN_VALUE_RESULT || kind == TERN_FILE_UNUSED) { /* without a node nothing can read it */
        tern_graph_add_value(in->graph, TERN_VALUE_RESULT, &m, NULL, NULL);
        return tern_error_status(in->ctx);
    }
    if (!tern_file_meta(in, &m))
        return tern_file_wrong(in, "a shape that is not valid");
    if (kind == TERN_VALUE_CONSTANT)
        return read_constant(in, &m);
    if (!tern_file_text(in, 2, TERN_FILE_NAME, name))
        return tern_file_wrong(in, "a name that is too long");
    if (kind == TERN_VALUE_INPUT && !tern_meta_is_contiguous(&m))
        return tern_file_wrong(in, "an input that is not contiguous");
    tern_graph_add_value(in->graph, (enum tern_value_kind)kind, &m, name, NULL);
    return tern_error_status(in->ctx);
}

static enum tern_status read_values(struct tern_file_in *in, int n_values)
{
    struct tern_graph *g = in->graph;
    for (int i = 0; i < n_values; i++)
        if (read_value(in))
            return tern_error_status(in->ctx);
    for (int i = 0; i < g->n_inputs; i++)
        if ((g->inputs[i] = tern_file_value(in, false)) < 0)
            return tern_file_wrong(in, "an input that is no value");
    for (int i = 0; i < g->n_outputs; i++)
        if ((g->outputs[i] = tern_file_value(in, false)) < 0)
            return tern_file_wrong(in, "an output that is no value");
    return TERN_OK;
}

static enum tern_status read_blocks(struct tern_file_in *in)
{
    in->blocks = tern_calloc(in->ctx, (size_t)in->n_blocks + 1, sizeof(*in->blocks));
    for (int i = 0; in->blocks && i < in->n_blocks; i++) {
        in->blocks[i].size = tern_file_number(in, 8);
        in->blocks[i].offset = tern_file_number(in, 8);
    }
    if (!in->blocks)
        return tern_error_status(in->ctx);
    return in->cut || in->at != in->size ? tern_file_wrong(in, "%zu bytes behind the plan", in->size - in->at) : TERN_OK;
}

static enum tern_status check_header(struct tern_file_in *in)
{
    const struct tern_key own = tern_plan_fingerprint(in->ctx);
    const char *magic = tern_file_take(in, strlen(TERN_FILE_MAGIC));
    uint64_t version = tern_file_number(in, 4);
    if (!magic || memcmp(magic, TERN_FILE_MAGIC, strlen(TERN_FILE_MAGIC)))
        return tern_file_wrong(in, "expected \"" TERN_FILE_MAGIC "\": this is no plan");
    if (version != TERN_FILE_VERSION)
        return tern_file_wrong(in, "version %llu: expected %d", (unsigned long long)version, TERN_FILE_VERSION);
    struct tern_key found = {{tern_file_number(in, 8)}};
    found.word[1] = tern_file_number(in, 8);
    if (!tern_key_equal(found, own))
        return tern_file_wrong(in, "a plan of another tern, device or processor");
    in->size -= in->size < 4 ? 0 : 4;
    uint32_t crc = (uint32_t)crc32_z(0, in->data, in->size), expected = 0;
    for (int i = 0; i < 4 && in->size >= in->at; i++)
        expected |= (uint32_t)in->data[in->size + (size_t)i] << 8 * i;
    return in->cut || in->at > in->size || crc != expected ? tern_file_wrong(in, "CRC-32 %08x: expected %08x", crc, expected) : TERN_OK;
}

static enum tern_status read_all(struct tern_file_in *in)
{
    if (check_header(in))
        return tern_error_status(in->ctx);
    struct tern_graph *g = in->graph;
    int n_values = tern_file_count(in, 4, TERN_FILE_VALUES);
    in->n_nodes = tern_file_count(in, 4, TERN_FILE_NODES);
    g->n_inputs = tern_file_count(in, 4, TERN_GRAPH_MAX_IO);
    g->n_outputs = tern_file_count(in, 4, TERN_GRAPH_MAX_IO);
    in->n_blocks = tern_file_count(in, 4, (3 + TERN_MAX_INPUTS) * TERN_FILE_NODES);
    in->arena = tern_file_number(in, 8);
    in->resident = tern_file_number(in, 8);
    in->tuning = tern_file_number(in, 8);
    for (int i = 0; i < 2; i++)
        in->key.word[i] = tern_file_number(in, 8);
    if (n_values < 0 || in->n_nodes < 0 || g->n_inputs < 0 || g->n_outputs < 1 || in->n_blocks < 0)
        return tern_file_wrong(in, "more values, nodes, inputs, outputs or blocks than a plan may have");
    if ((size_t)n_values > in->size || (size_t)in->n_nodes > in->size) /* each takes a byte and more */
        return tern_file_wrong(in, "more values or nodes than it has bytes for");
    if (!tern_graph_reserve(g, n_values, in->n_nodes))
        return tern_error_status(in->ctx);
    in->kernels = tern_calloc(in->ctx, (size_t)in->n_nodes + 1, sizeof(*in->kernels));
    if (!in->kernels)
        return tern_error_status(in->ctx);
    enum tern_status st = read_values(in, n_values);
    st = st ? st : tern_file_nodes(in);
    return st ? st : read_blocks(in);
}

static struct tern_plan *finish(struct tern_file_in *in)
{
    const struct tern_placement given = {in->blocks, in->n_blocks, in->arena};
    struct tern_plan *p = tern_plan_create(in->ctx);
    if (!p)
        return NULL;
    p->resident_limit = in->resident;
    p->tuning = in->tuning;
    p->key = in->key;
    p->graph = in->graph;
    p->graph->done = true;
    in->graph = NULL;
    tern_graph_shrink(p->graph);
    if (tern_failed(in->ctx) || tern_plan_steps(p, in->kernels) || tern_plan_layout(p, &given) || tern_plan_check_window(p))
        tern_plan_unref(&p);
    else
        tern_graph_count_uses(p->graph);
    return p;
}

/* Whatever a rule has said: the file is what is wrong, but where memory or the device is. */
static void blame(struct tern_context *ctx, const char *path)
{
    char text[TERN_ERROR_SIZE];
    const enum tern_status st = tern_error_status(ctx);
    const bool other = st == TERN_E_NO_MEMORY || st == TERN_E_BUDGET || st == TERN_E_DEVICE || st == TERN_E_CANCELLED;
    snprintf(text, sizeof(text), "%s", tern_error(ctx));
    tern_error_clear_own(ctx); /* another thread's stays as it is */
    tern_fail(ctx, other ? st : TERN_E_FORMAT, "%s: the plan cannot be used, compile it again: %s", path, text);
}

struct tern_plan *tern_plan_read(struct tern_context *ctx, const uint8_t *data, size_t size, const char *path)
{
    struct tern_file_in in = {.ctx = ctx, .data = data, .size = size, .graph = tern_graph_create(ctx)};
    double start = tern_now();
    struct tern_plan *p = in.graph && !read_all(&in) ? finish(&in) : NULL;
    if (p)
        p->facts.compile_time = tern_now() - start;
    else
        blame(ctx, path);
    tern_graph_destroy(&in.graph);
    tern_free(ctx, in.kernels);
    tern_free(ctx, in.blocks);
    return p;
}

struct tern_plan *tern_plan_load(struct tern_context *ctx, const char *path)
{
    size_t size;
    if (!ctx || tern_failed(ctx))
        return NULL;
    if (!path) {
        tern_fail(ctx, TERN_E_INVALID, "plan: no path to load from");
        return NULL;
    }
    double start = tern_now();
    char *data = tern_read_file(ctx, path, TERN_FILE_LIMIT, &size);
    struct tern_plan *p = data ? tern_plan_read(ctx, (const uint8_t *)data, size, path) : NULL;
    if (p)
        p->facts.compile_time = tern_now() - start;
    tern_free(ctx, data);
    return p;
}
