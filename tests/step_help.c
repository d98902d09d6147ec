/* What tests of a UNet's steps on a GPU share. */
#include "step_help.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/context.h"

void step_fill(tern_tensor *t, int step)
{
    size_t n = (size_t)tern_tensor_numel(t);
    float *values = calloc(n, sizeof(*values));
    assert_non_null(values);
    for (size_t i = 0; i < n; i++)
        values[i] = (float)((int)(i * 37 + (size_t)step * 11) % 101 - 50) / 50;
    assert_int_equal(tern_tensor_write(t, TERN_F32, values, n * sizeof(*values)), TERN_OK);
    free(values);
}

struct step_unet step_unet_open(struct tern_pipeline *p, int rows, int side)
{
    const struct tern_stage stage = {.component = "unet", .size = {rows, side, side}, .share = rows};
    struct step_unet u = {.binding = tern_pipeline_binding(p, &stage)};
    if (!u.binding)
        fail_msg("%s", tern_error(p->ctx));
    const struct tern_graph *g = tern_plan_graph(tern_binding_plan(u.binding));
    u.n = g->n_inputs;
    for (int i = 0; i < u.n; i++) {
        const struct tern_meta *m = &g->values[g->inputs[i]].meta;
        u.in[i] = tern_tensor_create(p->ctx, m->dtype, m->ndim, m->shape, NULL);
        step_fill(u.in[i], i);
    }
    return u;
}

void step_unet_close(struct step_unet *u)
{
    for (int i = 0; i < u->n; i++)
        tern_tensor_unref(&u->in[i]);
    tern_tensor_unref(&u->out[0]);
    tern_binding_unref(&u->binding);
}

struct tern_pipeline *step_sd15(struct tern_context *ctx, char folder[STEP_FOLDER])
{
    snprintf(folder, STEP_FOLDER, "/tmp/tern-sd15-XXXXXX");
    assert_non_null(mkdtemp(folder));
    enum tern_status made = tern_synth(ctx, folder, &(const struct tern_synth_params){.arch = "sd15", .dtype = TERN_F16});
    struct tern_pipeline *p = made ? NULL : tern_pipeline_load(ctx, folder, NULL);
    if (!p) {
        step_remove(folder);
        fail_msg("%s", tern_error(ctx));
    }
    return p;
}

void step_remove(const char *folder)
{
    char command[STEP_FOLDER + 16];
    snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    assert_int_equal(system(command), 0);
}
