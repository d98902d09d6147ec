/* From a prompt to a picture: load a checkpoint once, make pictures of it. */
#ifndef TERN_PIPELINE_H
#define TERN_PIPELINE_H

#include <tern/graph.h>
#include <tern/image.h>
#include <tern/scheduler.h>
#include <tern/tensor.h>
#include <tern/tokenizer.h>
#include <tern/weights.h>

#ifdef __cplusplus
extern "C" {
#endif

struct tern_pipeline;
/* The guidance scale of a job that does not say one: 7.5; of SDXL 5, as in diffusers; of the model that ships with tern 4, at which it was
 * measured. */
TERN_API double tern_pipeline_guidance(const struct tern_pipeline *p);

/* How a pipeline lives with less memory than its weights take. */
enum tern_offload {
    TERN_OFFLOAD_AUTO,       /* none, or what the context's budget, or the device's memory, asks for */
    TERN_OFFLOAD_NONE,       /* UNet and VAE stay in memory once they were used */
    TERN_OFFLOAD_SEQUENTIAL, /* each component leaves memory when its stage is done */
    TERN_OFFLOAD_STREAM      /* likewise, and the UNet's weights are brought at every step, one layer after the other */
};

/* The same for single components, by their names in diffusers. TERN_OFFLOAD_AUTO: as for all, and a text encoder leaves unless it is to be
 * kept, and is streamed when the budget does not hold it. NONE: it stays, a text encoder, too; STREAM: its weights are brought layer by
 * layer at every run, and it leaves when its stage is done. Text encoders that a model does not have are passed by. */
struct tern_offload_components {
    enum tern_offload text_encoder, text_encoder_2, unet, vae;
};

/* For every field of the params structs: zero means the default that stands beside it. */
struct tern_pipeline_params {
    enum tern_dtype dtype; /* compute type: TERN_F32 (default), TERN_BF16, TERN_F16 */
    /* Layers of the UNet that compute in int8 or keep their weights in few bits, as tern_plan_params has it: "*" all of them in int8,
     * "*:w8" and "*:w4" the weights of all in 8 and 4 bits; NULL, or words that name none: none. And those of the text encoders. */
    const char *quantize, *text_encoder_quantize;
    const char *recipe;        /* in place of it: a recipe's file (tern/quantize.h), which names them */
    const char *tokenizer_dir; /* a tokenizer folder that replaces the checkpoint's */
    const char *vae;           /* a VAE that replaces the checkpoint's: a weight file or a diffusers folder (docs/models.md) */
    const char *preview_vae;   /* what decodes previews, likewise: a TAESD; NULL: a linear map of the latents */
    enum tern_offload offload; /* TERN_OFFLOAD_AUTO */
    struct tern_offload_components offload_components;
    const char *on_cpu; /* components that compute on the CPU whatever the context's device is: names of diffusers with commas between, as
                         * "text_encoder,vae" (text_encoder, text_encoder_2, unet with its previews, vae); those that a model does not have
                         * are passed by. There f16 is computed in f32. NULL: none */
    size_t budget;      /* bytes that jobs are planned to keep to, as to the context's budget; of both the smaller one counts; 0: that */
    bool single_use;    /* one job is run, then the pipeline goes: each component leaves when its stage is done */
    bool keep_text_encoder; /* keep it in memory between pictures; default: dropped after encoding */
};

/* Opens a checkpoint: a diffusers folder, a single LDM-style .safetensors or .ckpt file, or "demo" (also
 * NULL) and "demo-zh" for the model that ships with tern. Reads headers and configuration and checks every
 * tensor's name and shape; weights are mapped and read when first needed. Paths that are relative lead from where the process is now,
 * also when it goes to another folder. NULL with the error recorded. */
TERN_API struct tern_pipeline *tern_pipeline_load(struct tern_context *ctx, const char *model, const struct tern_pipeline_params *params);
/* In a callback of a call that uses the pipeline it stays, and so does *p: TERN_E_INVALID in its context. */
TERN_API void tern_pipeline_destroy(struct tern_pipeline **p);

/* What was chosen in place of the caller, and why: texts for people, valid during the call. */
struct tern_choice {
    const char *what;  /* "dtype", "deepcache", "offload", "tiling" */
    const char *value; /* "int8", "3 quad:0:1.4" */
    const char *why;
};
typedef void tern_choice_callback(const struct tern_choice *choice, void *user);

/* The strength of a LoRA in a part of the model: multiplied with its scale. The most special part counts. */
struct tern_lora_strength {
    const char *block; /* "text_encoders" (all of them), "text_encoder", "text_encoder_2", "unet", "down", "mid", "up", "down.1" (a block),
                        * "up.1.2" (a layer of it), "mid.0" */
    double scale;
};

/* A LoRA file and how strongly it counts: W' = W + scale x alpha / rank x B A for each matrix W that it names [Hu 2021]; or another kind
 * of adapter: LoHa, LoKr, GLoRA, IA3, OFT, BOFT, DoRA, whole differences (docs/models.md). */
struct tern_lora {
    const char *path;                        /* .safetensors, .pt, .bin; names as diffusers, PEFT, kohya's scripts or LyCORIS write them */
    double scale;                            /* 1: as it was trained; 0: not at all; any finite number */
    const struct tern_lora_strength *blocks; /* NULL: the scale counts everywhere */
    int n_blocks;
};

/* Sets the LoRAs of the pipeline: those of the list and no others, all at once; n = 0: none. They stay until the next
 * call. The model's own weights are never changed: what a LoRA names is computed from them anew, in f32 and rounded once, so
 * that the result depends on this list alone, and an empty list gives the very weights of the checkpoint back.
 *
 * Paths and lists are copied. A file that stays in the list is not read again, so a scale of 0 keeps a LoRA at hand.
 * Tensors that the model has no place for are not used; when a file is read, one warning tells the log how many and which they are, and one
 * names the first with values that are NaN or infinite.
 * On an error (no such file, no LoRA, one for another architecture, no tensor that has a place, shapes that do not fit, a block that the
 * model does not have, no memory, cancelled) the pipeline is as it was. While new weights are computed, the former ones are still there:
 * the call needs the memory of both. Not from a callback of a call that uses the pipeline. One thread at a time, as for all of a
 * context. */
TERN_API enum tern_status tern_pipeline_set_loras(struct tern_pipeline *p, const struct tern_lora *loras, int n);

/* The LoRAs that a prompt names by AUTOMATIC1111's tags. */
struct tern_prompt_loras {
    char *prompt;            /* without the tags */
    struct tern_lora *loras; /* for tern_pipeline_set_loras */
    int count;
};
/* Takes <lora:NAME>, <lora:NAME:SCALE> and <lora:NAME:TEXT_ENCODERS:UNET> (or te=, unet=) out of a prompt; NAME is that of a file in
 * `folder`, without its ending. TERN_E_NOT_FOUND without such a file, TERN_E_UNSUPPORTED for tags of another kind. Free what comes out with
 * tern_prompt_loras_free. A job in A1111's syntax refuses a prompt that still has tags. */
TERN_API enum tern_status tern_prompt_take_loras(struct tern_context *ctx, const char *prompt, const char *folder,
                                                 struct tern_prompt_loras *out);
TERN_API void tern_prompt_loras_free(struct tern_context *ctx, struct tern_prompt_loras *l);

/* A textual inversion: a word of prompts that stands for vectors [Gal 2022]. */
struct tern_prompt_embedding {
    const char *path; /* .safetensors, .pt, .bin */
    const char *name; /* NULL: the name of the file without its ending, and the one that the file gives it, but not one of an
                       * embedding before it in the list */
};

/* Sets the embeddings of the pipeline: those of the list and no others; n = 0: none. A prompt that has the name of one gets its
 * vectors there, in both syntaxes. Names and vectors are copied. On an error (no such file, no embedding, vectors of another width than
 * the text encoder's, a name twice) the pipeline is as it was. Not from a callback of a call that uses the pipeline. */
TERN_API enum tern_status tern_pipeline_set_embeddings(struct tern_pipeline *p, const struct tern_prompt_embedding *list, int n);

/* One picture during sampling: `steps` are model calls (of dpm_adaptive, until the last, an estimate), counted anew in a second pass;
 * `latents` are n x 4 x height/8 x
 * width/8 values, valid during the call. */
typedef void tern_step_callback(int step, int steps, const float *latents, int64_t count, void *user);

/* What a picture looks like to become, during sampling: what the model has just taken for the picture without noise. By preview_vae
 * it is of full size, by the linear map a pixel is one of the latents (an eighth of each side). `index` counts the pictures of the job.
 * The picture is borrowed during the call. */
typedef void tern_preview_callback(int step, int steps, int index, const struct tern_image *picture, void *user);

/* How prompts are read. docs/prompts.md tells the second one. */
enum tern_prompt_syntax {
    TERN_PROMPT_PLAIN, /* as text, nothing else: what diffusers does */
    TERN_PROMPT_A1111  /* as AUTOMATIC1111 does: (attention:1.2), [from:to:when], [a|b], AND, BREAK, any length */
};

/* What the weights of attention do with the states of their tokens. */
enum tern_emphasis {
    TERN_EMPHASIS_ORIGINAL, /* multiply them, and all of the chunk such that its mean is what it was */
    TERN_EMPHASIS_NO_NORM,  /* multiply them */
    TERN_EMPHASIS_IGNORE    /* nothing */
};

/* AUTOMATIC1111's hires fix: when the picture is sampled, its latents are resized and sampled again, from the last of so many steps that
 * the denoising strength is reached. There is a second pass when hr_scale, hr_resize_x or hr_resize_y is set. */
struct tern_hires {
    double hr_scale;              /* of width and height; rounded down to whole latent pixels */
    int hr_resize_x, hr_resize_y; /* the size in place of a scale, at most 8192; one of the two: the other follows. Both: the picture
                                   * fills that size, and what is too long is cut off on both sides */
    const char *hr_upscaler;      /* "Latent": bilinear; or "Latent (antialiased)", "Latent (bicubic)", "Latent (bicubic antialiased)",
                                   * "Latent (nearest)", "Latent (nearest-exact)", as torch.nn.functional.interpolate */
    int hr_second_pass_steps;     /* exactly so many; as many as the first pass */
    double denoising_strength;    /* 0 < x <= 1; 0.7 */
    /* NULL (also ""), 0: those of the first pass */
    const char *hr_prompt, *hr_negative_prompt;
    enum tern_sampler hr_sampler;
    enum tern_schedule hr_schedule;
    double hr_cfg;
    int hr_discard_penultimate_sigma; /* 0: as the first pass, if the sampler has it; 1: yes; negative: no */
    int hr_k_diffusion_levels;        /* likewise */
};

/* Of a job. */
#define TERN_MAX_PICTURES 64
#define TERN_CFG_ZERO 1e-9   /* as cfg: a guidance scale of 0, which as a number is the default */
#define TERN_SCORE_ZERO 1e-9 /* likewise, of an aesthetic score */

struct tern_txt2img_params {
    const char *prompt;          /* "" */
    const char *negative_prompt; /* ""; SDXL: NULL is zeros in place of a text, as its model_index.json asks for; A1111: "" is, too */
    enum tern_prompt_syntax prompt_syntax; /* TERN_PROMPT_PLAIN */
    enum tern_emphasis emphasis;           /* TERN_EMPHASIS_ORIGINAL */
    int clip_skip;     /* the text encoder's layer that counts, from behind: 1 the last one (default), 2 the last but one. Only where the
                        * text encoder is OpenAI's CLIP alone (SD 1.x): elsewhere it changes nothing, as in AUTOMATIC1111, but has to be one of
                        * its layers */
    int width, height; /* pixels, multiples of 8, at most 8192; the model's own size */
    int steps;         /* 1..1000; 20 */
    double cfg;        /* guidance scale; tern_pipeline_guidance. At most 1: no guidance, one UNet row, and
                        * all the same but to a model that is told the scale (LCM) */
    double image_guidance_scale; /* instruct-pix2pix: guidance by init_image; 1.5. Higher is nearer to it, at 1 it does nothing (two UNet
                                  * rows in place of three), below 1 there is no guidance, cfg's neither, as in diffusers, and AND and
                                  * a weight behind a text are refused. Other models refuse it */
    uint64_t seed;               /* of the first picture; the next has seed + 1 … */
    enum tern_sampler sampler;   /* the checkpoint's */
    enum tern_schedule schedule;
    struct tern_sampler_options sampler_options; /* eta, churn … as tern_scheduler_set_options takes them */
    int64_t ensd; /* A1111's "eta noise seed delta": noise after the first is of the seed plus that, which fits into 32 bits; 0: goes on */
    enum tern_generator_kind generator; /* TERN_GENERATOR_CPU */
    int count;                          /* pictures made together, at most TERN_MAX_PICTURES; 1 */

    const struct tern_image *init_image; /* img2img: starts from this picture (resized to width x height); instruct-pix2pix: edits it */
    const struct tern_image *mask_image; /* inpaint: white is painted anew, black kept; needs init_image */
    double strength;                     /* img2img, inpaint: 0 < strength <= 1; 0.8 (inpaint, instruct-pix2pix: 1) */

    tern_tensor *init_latents; /* (count, 4, height/8, width/8) unit noise instead of the seed's */

    struct tern_hires hires; /* a second pass at another size; from text alone, by one model. Noise is of the seed again */

    /* SDXL: what the picture is said to be; names, meaning and order (height, width; top, left) are diffusers'. A model without such a
     * condition refuses it. */
    int original_size[2];                             /* before it was scaled and cropped; height, width */
    int crops_coords_top_left[2];                     /* 0, 0 */
    int target_size[2];                               /* height, width */
    double aesthetic_score, negative_aesthetic_score; /* of a refiner, in place of the target size; 6, 2.5 */
    /* The same of the picture that it is not to be: as above where they are not given. As in diffusers, txt2img takes both sizes or none,
     * and the crop beside them; a refiner takes the first two; else with init_image or denoising_start the sizes count alone. */
    int negative_original_size[2];
    int negative_crops_coords_top_left[2]; /* 0, 0 where it counts */
    int negative_target_size[2];

    /* One picture by two models, as SDXL's base and refiner: the first ends where `denoising_end` (0 < x < 1) of the training steps are
     * done, the second has the same steps and begins behind `denoising_start` with init_latents, which are the latents that the first
     * ended with (tern_images_latents) and no noise. 0: all steps. The second has no init_image, but when both inpaint: then it gets
     * init_image, mask_image and strength, too, and keeps what the first has kept. Its prompt counts on where the first has ended, and
     * but for inpainting its noise goes on behind what the first has drawn: as if one model made all steps, unless that one had
     * init_latents, or an init_image with a strength below 1. */
    double denoising_end, denoising_start;
    /* For the infotext alone: the model behind denoising_end, by its path or name, and the scores that it is told. NULL: it is not known. */
    struct {
        const char *name;
        double aesthetic_score, negative_aesthetic_score;
    } refiner;

    /* DeepCache [Ma 2023]; docs/deepcache.md. One call of the UNet in `cache_interval` is whole, the others compute what is shallower than
     * a skip connection, and take from the last whole one what is deeper. Names are the reference's. */
    int cache_interval;   /* 1..1000; 1: every call is whole */
    int cache_branch_id;  /* the skip connection, from the outermost on, three a block of the UNet: 0..11, SDXL 0..8; 0 */
    int cache_center;     /* with cache_pow: the step, 0..steps, around which the whole calls are most frequent; 0 */
    double cache_quality; /* in place of the other four, which are chosen: the mean SSIM (tern_image_ssim) to the pictures that whole calls
                           * would have made, above 0 and below 1; 0: off. With 4 pictures or more the first one is measured, with fewer a
                           * trial in few steps; later jobs of that kind take what was found from the cache folder. Callbacks
                           * are not told of pictures that are measured */
    double cache_pow;     /* above 1 and at most 10: how much rarer the others are; 0: uniform */

    tern_step_callback *on_step; /* after each step */
    void *on_step_user;
    tern_preview_callback *on_preview; /* after every so many calls of the model; latents and pictures of the job are the same without it */
    void *on_preview_user;
    int preview_every; /* 1 */
    /* Told what each step of each plan took ("text_encoder", "text_encoder_2", "unet", "vae_decoder", "vae_encoder", of
     * previews "preview_decoder"); start counts from the
     * start of tern_generate, after the device's peak was measured. NULL: nothing is measured. */
    void (*on_kernel)(const char *component, const struct tern_step_profile *step, void *user);
    void *on_kernel_user;
    /* Told what was chosen, before the pictures are made with it: "deepcache" where cache_quality asks for it, else under a budget
     * "offload" and "tiling". */
    tern_choice_callback *on_choice;
    void *on_choice_user;
    const char *schedule_config; /* reserved for tests: scheduler_config.json text instead of the model's */
};
#define tern_txt2img_params(...) ((struct tern_txt2img_params){__VA_ARGS__})

/* What an infotext says: the text under "parameters" of a picture that tern or AUTOMATIC1111 made. */
struct tern_infotext {
    struct tern_txt2img_params params; /* what tern_generate repeats the picture with; its prompts belong to this struct. Fields that the
                                        * text does not have are 0, the default, but for the generator, which A1111 says when it is not
                                        * a GPU's, its schedule, which is TERN_SCHEDULE_NORMAL, and what else its samplers do with noise
                                        * levels (k_diffusion_levels, discard_penultimate_sigma, and those of hires). Of a picture with a
                                        * refiner they are those of the first model, and params.refiner tells the second */
    bool has_seed;                     /* false: no seed is said, or none that can be followed, and params.seed is 0 */
    char *model;                       /* the model's name; NULL: it is not said */
    char *vae;                         /* the name of a VAE's file; NULL: it is the model's own */
    char *embeddings;                  /* "name: hash, ..." of the textual inversions; "" */
    enum tern_dtype dtype;             /* as in tern_pipeline_params; f32 when it is not said */
    char *quantize;                    /* likewise; NULL: nothing is quantised */
    char *text_encoder_quantize;       /* likewise */
    char *loras;                       /* a plain prompt's LoRAs as tags, which are not in params.prompt; "" */
    char *ignored;                     /* what cannot be followed, for people: "Model hash: 81761151, Hires upscale: 2"; "" */
};
/* Reads an infotext. Prompts are in A1111's syntax, unless tern wrote the text ("Version: tern ...") of a plain one. TERN_E_FORMAT
 * when it has no fields, TERN_E_INVALID when it is no UTF-8. Free what comes out, but not after an error, with tern_infotext_free. */
TERN_API enum tern_status tern_infotext_read(struct tern_context *ctx, const char *text, struct tern_infotext *out);
TERN_API void tern_infotext_free(struct tern_context *ctx, struct tern_infotext *t);

/* Pictures of one call. */
struct tern_images;
TERN_API int tern_images_count(const struct tern_images *images);
/* Borrowed. */
TERN_API struct tern_image *tern_images_at(const struct tern_images *images, int i);
/* Latents after the last step, before the division by the scaling factor: (count, 4, h/8, w/8) f32, borrowed. */
TERN_API tern_tensor *tern_images_latents(const struct tern_images *images);
TERN_API void tern_images_destroy(struct tern_images **images);

/* Makes params->count pictures: txt2img, img2img (init_image) or inpaint (init_image and mask_image); with an instruct-pix2pix model
 * what the prompt asks to make of init_image.
 * All parameters are checked before anything is computed. NULL with the error recorded, also
 * TERN_E_CANCELLED. Each picture carries its infotext under "parameters". Scopes that the caller has open are set aside until it returns:
 * what a callback makes belongs to the callback. A callback of the parameters may make another job by the same pipeline; what components
 * are in memory then are still there after it, and those that come for it go again; plans stay, unless it does not fit
 * or asks for other limits. */
TERN_API struct tern_images *tern_generate(struct tern_pipeline *p, const struct tern_txt2img_params *params);

/* The same for one picture, which the caller owns. */
TERN_API struct tern_image *tern_txt2img(struct tern_pipeline *p, const struct tern_txt2img_params *params);

/* The checks of tern_generate alone, and the memory that it will need at most, in bytes (0 with an error). Who asks for that compares it
 * with the budget: a job that needs more is no error then, and its bytes are the least that it can do with. What goes on behind
 * denoising_start is checked also while it has no init_latents, before the first model makes them. What earlier jobs have left in memory
 * goes where the job would have it go; in a callback of another call the components that come for the check go again, and no others. Plans
 * stay, unless the job does not fit or asks for other limits. */
TERN_API enum tern_status tern_generate_check(struct tern_pipeline *p, const struct tern_txt2img_params *params, size_t *peak_bytes);

/* What a job is to be good at. docs/quantization.md has what each costs. */
enum tern_goal {
    TERN_GOAL_SPEED,  /* the faster one of bf16 or f16 (as tern_context_fast_dtype has it) and int8 by the cost model, DeepCache with
                       * cache_quality 0.95; what needs the least memory where neither keeps to the budget */
    TERN_GOAL_MEMORY, /* the dtype, offload and tiling with the least predicted peak */
    TERN_GOAL_QUALITY /* f32, or what of the others comes next when the budget is too small for it; no DeepCache */
};
struct tern_optimize_params {
    enum tern_goal goal;
    /* What the caller's params say of dtype and quantize, offload, DeepCache stays. Words for weights alone and a recipe stay anyway. */
    bool keep_dtype, keep_offload, keep_cache;
    /* Opens the model, with LoRAs and embeddings that count; NULL with the error recorded. NULL: tern_pipeline_load. */
    struct tern_pipeline *(*open)(const struct tern_pipeline_params *params, void *user);
    void *open_user;
    tern_choice_callback *on_choice; /* each choice; NULL: not told */
    void *on_choice_user;
};
/* Chooses dtype, int8, DeepCache, offload and tiling for a job by what is predicted of memory and time, within the context's budget.
 * What is chosen stands in *pipeline and *job afterwards: the same params give the same pictures without this call. The pipeline is the
 * caller's. NULL with the error recorded: TERN_E_BUDGET, with the least that would do and how, where nothing keeps to the budget. */
TERN_API struct tern_pipeline *tern_pipeline_optimize(struct tern_context *ctx, const char *model, struct tern_pipeline_params *pipeline,
                                                      struct tern_txt2img_params *job, const struct tern_optimize_params *params);

/* Facts of the checkpoint: one text block for people, or one JSON object for programs: architecture, layout, components,
 * tensors by dtype, parameters, metadata. Free with tern_free_text. */
TERN_API char *tern_pipeline_describe(struct tern_pipeline *p, bool json);
/* The same of any one weight file. */
TERN_API char *tern_weights_describe(struct tern_context *ctx, const char *path, bool json);

/* The tokenizer (borrowed), index 0 or 1 (SDXL's second). NULL with the error recorded when there is none: the
 * checkpoint came without one, and the CLIP tokenizer that ships with tern does not fit its text encoder. */
TERN_API struct tern_tokenizer *tern_pipeline_tokenizer(struct tern_pipeline *p, int index);

/* Of a graph, in rows and pixels; zero: one row, the model's own size. */
struct tern_graph_size {
    int batch, width, height;
};
/* A component as a graph. Inputs and outputs, in order (dtypes: the pipeline's unless said otherwise):
 *   text_encoder  input_ids (N, L) i64 -> last_hidden_state, hidden_states.0 … n, f32
 *   text_encoder_2  of SDXL: the same
 *   unet          sample (N, C, h, w), time (1, T) f32 sinusoids, encoder_hidden_states (N, L, D); SDXL: added (N, P) f32 -> sample
 *   vae_decoder   latent (N, 4, h, w) -> sample (N, 3, H, W)
 *   vae_encoder   sample (N, 3, H, W) -> mean, logvar (N, 4, h, w); of a TAESD the latent alone
 * NULL with the error recorded. */
TERN_API struct tern_graph *tern_pipeline_graph(struct tern_pipeline *p, const char *component, const struct tern_graph_size *size);
/* The weights that a plan of that graph is bound to; borrowed, valid as long as the pipeline has them. NULL with the error recorded, also
 * for those that are in memory in a callback where the pipeline begins nothing (tern_context_params). */
TERN_API const struct tern_weights *tern_pipeline_weights(struct tern_pipeline *p, const char *component);

/* Runs one component: "text_encoder", "text_encoder_2" (SDXL), "unet", "vae_decoder", "vae_encoder". Inputs and outputs are named
 * as in the forward() of diffusers / transformers: a UNet that is told the guidance scale (LCM) may have timestep_cond (1, T) or (N, T),
 * zeros without it; the vae_encoder of a TAESD gives latents in place of mean and logvar. Errors: unknown component (the list is shown),
 * input missing, of a wrong shape, or left over. The caller owns the result. */
TERN_API struct tern_weights *tern_pipeline_exec(struct tern_pipeline *p, const char *component, const struct tern_weights *inputs);

/* Writes a full-size checkpoint with seeded random weights, scaled so that activations stay finite in f16.
 * A diffusers folder, or with single_file one LDM-style .safetensors (not of "taiyi"). dtype f16 or f32. The folder must be new or empty;
 * it appears when it is complete, as the file does. */
struct tern_synth_params {
    const char *arch; /* "sd15" (also NULL), "sd2", "sdxl", "taiyi" */
    enum tern_dtype dtype;
    bool single_file;
    uint64_t seed;
};
TERN_API enum tern_status tern_synth(struct tern_context *ctx, const char *out, const struct tern_synth_params *params);

/* Writes a checkpoint in the other form, or in another dtype: a diffusers folder, or one LDM-style .safetensors. */
enum tern_convert_form { TERN_CONVERT_OTHER, TERN_CONVERT_FOLDER, TERN_CONVERT_SINGLE_FILE };
struct tern_convert_params {
    enum tern_convert_form form; /* TERN_CONVERT_OTHER: the one that the model does not have */
    bool change_dtype;           /* false: tensors keep their own */
    enum tern_dtype dtype;       /* f32, f16 or bf16; rounded to nearest even. Integers stay what they are */
    /* Layers of the UNet and of the text encoders whose weights are written in int8 or in 4 bits, as in tern_pipeline_params. All NULL: a
     * model that comes quantised stays so without change_dtype, and becomes floats with it. */
    const char *quantize, *text_encoder_quantize;
    const char *recipe; /* in place of quantize */
};
/* `model` as in tern_pipeline_load, but for the demo models; `out` appears when it is complete or not at all. Tensor by tensor: memory
 * is that of the largest one. A folder gets the configurations that are recognised, and CLIP's tokenizer. Refused: out is the
 * model itself; a folder that is there and not empty; a single file of a BERT, or of a configuration that no single file tells. */
TERN_API enum tern_status tern_convert(struct tern_context *ctx, const char *model, const char *out,
                                       const struct tern_convert_params *params);

#ifdef __cplusplus
}
#endif
#endif
