/* The layers that all models share: their weights and their few lines of forward code. Owned tensors; `destroy` functions
 * release them and may be called on zeroed structs. */
#ifndef TERN_MODELS_LAYERS_H
#define TERN_MODELS_LAYERS_H

#include <tern/ops.h>

#include "models/modules/bind.h"

struct tern_layer {
    tern_tensor *w, *b; /* b may be NULL */
};

void tern_layer_destroy(struct tern_layer *l);

/* "name.weight" and "name.bias" of a linear (out, in), a conv2d (out, in, k, k), a norm (n). */
struct tern_layer tern_bind_linear(struct tern_bind *b, const char *name, int64_t out, int64_t in, bool bias);
struct tern_layer tern_bind_conv(struct tern_bind *b, const char *name, int64_t out, int64_t in, int kernel);
struct tern_layer tern_bind_conv_without_bias(struct tern_bind *b, const char *name, int64_t out, int64_t in, int kernel);
struct tern_layer tern_bind_norm(struct tern_bind *b, const char *name, int64_t n);

tern_tensor *tern_apply_linear(const struct tern_layer *l, tern_tensor *x);
/* Same size; a 3x3 kernel is padded by 1. */
tern_tensor *tern_apply_conv(const struct tern_layer *l, tern_tensor *x);
/* Half the size with a 3x3 kernel. padding 1: on all sides; 0: one row and column of zeros at the far sides only. */
tern_tensor *tern_apply_downsample(const struct tern_layer *l, tern_tensor *x, int padding);
tern_tensor *tern_apply_group_norm(const struct tern_layer *l, tern_tensor *x, int groups, double eps);
tern_tensor *tern_apply_layer_norm(const struct tern_layer *l, tern_tensor *x, double eps);

/* (N, C, H, W) -> (N, H * W, C) and back; views of channels-last pictures. */
tern_tensor *tern_to_tokens(tern_tensor *x);
tern_tensor *tern_from_tokens(tern_tensor *x, int64_t h, int64_t w);
/* (M, L, C) or (M, C, H, W), all rows again and again -> n rows, a multiple of M. x itself where M is n. */
tern_tensor *tern_repeat_tokens(tern_tensor *x, int64_t n);
tern_tensor *tern_repeat_picture(tern_tensor *x, int64_t n);

/* Multi-head attention of x (N, L, C) to context (N, S, D), heads split from C.      [Vaswani 2017, 3.2.2]
 * mask NULL or as in tern_sdpa. x may have fewer rows, which are repeated once they are projected. */
struct tern_attention {
    struct tern_layer q, k, v, out;
    int heads;
};
tern_tensor *tern_attend(const struct tern_attention *m, tern_tensor *x, tern_tensor *context, tern_tensor *mask, bool causal);
void tern_attention_destroy(struct tern_attention *m);

/* Activations by their name in config.json; TERN_ACT_UNKNOWN otherwise. */
enum tern_activation { TERN_ACT_SILU, TERN_ACT_GELU, TERN_ACT_GELU_TANH, TERN_ACT_QUICK_GELU, TERN_ACT_RELU, TERN_ACT_UNKNOWN };
enum tern_activation tern_activation_parse(const char *name);
tern_tensor *tern_activate(enum tern_activation act, tern_tensor *x);

/* ResnetBlock2D: x (N, C, H, W), temb (N, T) or NULL -> (N, C', H, W)       [He 2016; Rombach 2022, A.3] */
struct tern_resnet {
    struct tern_layer norm1, conv1, time, norm2, conv2, skip; /* skip.w NULL when C == C' */
    int groups;
    double eps;
};
/* temb 0: none */
struct tern_resnet tern_bind_resnet(struct tern_bind *b, int64_t in, int64_t out, int64_t temb, int groups, double eps);
tern_tensor *tern_apply_resnet(const struct tern_resnet *m, tern_tensor *x, tern_tensor *temb);
void tern_resnet_destroy(struct tern_resnet *m);

#endif
