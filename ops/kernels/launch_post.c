/* Posts as text: the element-wise ops behind a kernel's own, on each result before it is stored. */
#include <stdio.h>
#include <string.h>

#include "ops/kernels/launch_internal.h"

bool tern_post_call(const struct tern_post *p, const char *value, const char *operand, char *out, size_t size)
{
    const char *name = tern_op_get((enum tern_op)p->op).name;
    int n = -1;
    switch ((enum tern_op)p->op) {
    case TERN_OP_neg:
    case TERN_OP_tanh:
    case TERN_OP_sigmoid:
    case TERN_OP_relu:
    case TERN_OP_silu:
    case TERN_OP_quick_gelu:
        n = snprintf(out, size, "tern_%s(%s)", name, value);
        break;
    case TERN_OP_gelu:
        n = snprintf(out, size, "tern_gelu%s(%s)", p->value != 0 ? "_tanh" : "", value);
        break;
    case TERN_OP_add_scalar:
    case TERN_OP_mul_scalar:
    case TERN_OP_add:
    case TERN_OP_mul:
        n = snprintf(out, size, "tern_%s(%s, %s)", name, value, operand);
        break;
    case TERN_OP_cast: /* values are floats until they are stored */
        n = snprintf(out, size, "%s", value);
        break;
    default:
        break;
    }
    return n > 0 && (size_t)n < size;
}

/* An operand as (i / inner) ld + c step, where i is the place in the output's memory and c the index along `channel`. */
struct operand {
    int64_t inner, ld, step;
};

/* Dimensions of the output by memory, innermost first; those of size 1 are left out. */
static int memory_order(const struct tern_meta *out, int order[TERN_MAX_DIMS])
{
    int n = 0;
    for (int i = 0; i < out->ndim; i++) {
        if (out->shape[i] == 1)
            continue;
        int at = n++;
        for (; at > 0 && out->stride[order[at - 1]] > out->stride[i]; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    return n;
}

static bool operand_of(const struct tern_meta *m, const struct tern_meta *out, int channel, struct operand *o)
{
    int order[TERN_MAX_DIMS], n = memory_order(out, order);
    int64_t stride[TERN_MAX_DIMS], inner = 1;
    tern_broadcast_strides(m, out, stride);
    for (int t = 0; t <= n; t++) { /* the t innermost dimensions are what `inner` covers */
        bool good = true;
        *o = (struct operand){inner, t < n ? stride[order[t]] : 0, 0};
        for (int i = 0; i < t; i++) {
            if (order[i] == channel)
                o->step = stride[channel];
            else
                good = good && stride[order[i]] == 0;
        }
        for (int i = t + 1; i < n; i++)
            good = good && stride[order[i]] == stride[order[i - 1]] * out->shape[order[i - 1]];
        if (good)
            return true;
        if (t < n)
            inner *= out->shape[order[t]];
    }
    return false;
}

void tern_launch_posts(struct tern_launch_maker *m, int channel)
{
    const struct tern_op_desc *d = m->d;
    struct tern_params_head *p = &m->l->params.head;
    char buffers[128] = "", text[1024] = "v", next[1024], operand[64];
    int first = m->l->n_slots;
    if (!d->n_post)
        return;
    m->failed = m->failed || !tern_meta_is_dense(&d->out) || d->n_post > TERN_MAX_POST;
    for (int i = 0; i < d->n_post && !m->failed; i++) {
        const struct tern_post *post = &d->post[i];
        p->post_value[i] = (float)post->value;
        snprintf(operand, sizeof(operand), "P.post_value[%d]", i);
        if (post->input >= 0) {
            struct operand o;
            char name[16];
            int slot = m->l->n_slots;
            if (!operand_of(&d->in[post->input], &d->out, channel, &o)) {
                m->failed = true;
                return;
            }
            snprintf(name, sizeof(name), "post%d", i);
            snprintf(buffers + strlen(buffers), sizeof(buffers) - strlen(buffers), " READ(%d, %s)", slot, name);
            snprintf(operand, sizeof(operand), "LOAD(post%d, POST_AT(%d, i, c))", i, i);
            tern_launch_read(m, name, (int)post->input);
            p->post_inner[i] = (int32_t)o.inner;
            p->post_ld[i] = (int32_t)o.ld;
            p->post_step[i] = (int32_t)o.step;
        }
        m->failed = m->failed || !tern_post_call(post, text, operand, next, sizeof(next));
        memcpy(text, next, sizeof(text));
    }
    if (m->l->n_slots > first)
        tern_launch_define(m, "POST_BUFFERS(READ)%s", buffers);
    tern_launch_define(m, "POST(v, i, c) %s", text);
}
