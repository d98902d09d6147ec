/* Which layers of a UNet compute in int8: found by trying them, kept in a file. docs/quantization.md tells how. */
#ifndef TERN_QUANTIZE_H
#define TERN_QUANTIZE_H

#include <tern/pipeline.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A recipe: all layers of one architecture, and which of them are int8. Any checkpoint of the architecture takes it. */
struct tern_recipe;

/* One linear layer or convolution; or all attention of the network. Strings belong to the recipe. */
struct tern_recipe_layer {
    const char *name; /* of its weight: "down_blocks.0.resnets.0.conv1.weight"; "sdpa" */
    const char *kind; /* "conv", "linear" or "attention" */
    int ndim;
    int64_t shape[4]; /* of its weight; attention has none, ndim 0 */
    bool int8;
    const char *decision;  /* why it is int8, or why not; "" in a recipe that says nothing */
    double density;        /* operations for each byte that it moves, at the size of the job, of attention the highest of a call; 0: not
                              known, as all that follows */
    int measured_with;     /* layers that were tried together, itself among them; 0: it was not tried */
    double error;          /* of those together: mean square of what the final latents differ by, over the variance of the plain ones */
    double seconds, saved; /* of one call of the UNet: what it takes, and how much less it takes in int8 */
};

/* Of the whole recipe; 0: not known. */
struct tern_recipe_facts {
    double error;                           /* as a layer's, of all that are int8 together */
    double ssim;                            /* mean over the calibration prompts: pictures with the recipe to those without */
    double seconds;                         /* of one call of the UNet without the recipe, the sum over its steps */
    double saved;                           /* the sum over layers that are int8 */
    double call_seconds, call_int8_seconds; /* of a whole call without the recipe and with it, run in turns: the speedup is their ratio */
    int trials, verified;                   /* how often latents were sampled with some layers in int8; and pictures made */
};

/* Reads a recipe. NULL with the error recorded: no recipe, another version, a layer twice, wrong types or values, too long. */
TERN_API struct tern_recipe *tern_recipe_open(struct tern_context *ctx, const char *path);
TERN_API void tern_recipe_destroy(struct tern_recipe **recipe);
/* Writes it; complete or not at all. The same recipe gives the same bytes. */
TERN_API enum tern_status tern_recipe_save(const struct tern_recipe *recipe, const char *path);

/* For people: "Stable Diffusion 1". Borrowed. */
TERN_API const char *tern_recipe_architecture(const struct tern_recipe *recipe);
TERN_API int tern_recipe_count(const struct tern_recipe *recipe);
/* In the order of the network; borrowed. NULL behind the last. */
TERN_API const struct tern_recipe_layer *tern_recipe_at(const struct tern_recipe *recipe, int i);
TERN_API struct tern_recipe_facts tern_recipe_facts(const struct tern_recipe *recipe);
/* Norms that are divided by factors (SmoothQuant). */
TERN_API int tern_recipe_smoothed(const struct tern_recipe *recipe);
/* The layers that are int8, and factors, as tern_plan_params.quantize takes them; tern_free_text. NULL with the error recorded. */
TERN_API char *tern_recipe_words(const struct tern_recipe *recipe);
/* Whether it is for the architecture of the model: names and shapes of all layers are the same, but for the inputs of the first one, which
 * a kin that is told a picture (inpainting, instructions) has more of; and its factors are of norms that may be divided. TERN_E_FORMAT
 * names both, and the first layer that differs. */
TERN_API enum tern_status tern_recipe_check(const struct tern_recipe *recipe, struct tern_pipeline *p);

/* tern_plan_params.quantize of a component's plans: that of the params, of a recipe, or of the files of a model that comes quantised; NULL:
 * none. Borrowed. */
TERN_API const char *tern_pipeline_layer_words(const struct tern_pipeline *p, const char *component);

/* For every field: zero means the default that stands beside it. */
struct tern_quantize_params {
    const char *const *prompts; /* for calibration; at least one */
    int n_prompts;
    const char *negative_prompt;         /* as in tern_txt2img_params, and so are these */
    const struct tern_image *init_image; /* instruct-pix2pix: what each prompt edits; other models refuse it. One for inpainting paints
                                          * whole pictures anew */
    int width, height, steps;            /* steps: 8 */
    double cfg;
    uint64_t seed; /* of the first prompt; the next has seed + 1 ... */
    enum tern_sampler sampler;
    enum tern_schedule schedule;

    int bits;                                                /* 8 */
    bool quantize_conv, quantize_linear, quantize_attention; /* kinds that may be int8; none of them: all */
    bool quantize_slower;             /* layers that take longer in int8, too: their weights take half of the memory */
    double conv_mse_threshold;        /* most error of a convolution by itself, or of a group that is not looked at one by one; 0.1 */
    double linear_mse_threshold;      /* likewise of a linear layer, or of attention; 0.1 */
    double smooth_quant;              /* 0 < x < 1: norms are divided by (largest |x|)^x / (largest |weight|)^(1 - x) of each channel,
                                         and the weights behind them multiplied [Xiao 2023]; 0: they are not */
    double compute_density_threshold; /* least operations for each byte that a layer moves; 0: no limit */
    double ssim;                      /* 0 < x < 1: layers are left out until the pictures are that much like; 0: no such target */
    double speedup;                   /* above 1: the layers of least error that make a call of the UNet that much faster; 0: none */

    const char *state; /* a file that what was measured is kept in while it runs, so that the next call goes on there; NULL: none */
    bool restart;      /* what that file has does not count */
    bool keep_state;   /* it is left there when the call succeeds, too: for who removes it when the recipe is written */

    /* The pictures of each prompt without and with the recipe, in the end; borrowed. It may make others by the pipeline. An error that it
     * leaves recorded is one of the call, and takes the recipe. */
    void (*on_picture)(int prompt, const struct tern_image *before, const struct tern_image *after, void *user);
    void *on_picture_user;
};
#define tern_quantize_params(...) ((struct tern_quantize_params){__VA_ARGS__})

/* Finds the layers that may compute in int8: groups of layers, then where they lose much their halves, down to single layers, are quantised
 * and the sampler's latents compared; what a layer saves is measured. Progress is told as the stage "quantize". The pipeline is one
 * without `quantize` or recipe; it is as it was in the end. NULL with the error recorded: wrong params before anything is computed; no
 * int8 kernel on the device; a state file of another run; TERN_E_UNSUPPORTED when the target cannot be reached, with the best that can;
 * TERN_E_CANCELLED, and then the state file is there, as soon as there was something to keep. It goes when the call succeeds, without
 * keep_state. */
TERN_API struct tern_recipe *tern_pipeline_quantize(struct tern_pipeline *p, const struct tern_quantize_params *params);

#ifdef __cplusplus
}
#endif
#endif
