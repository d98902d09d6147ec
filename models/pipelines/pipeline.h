/* The inside of a pipeline: a checkpoint and the components that are in memory now. */
#ifndef TERN_MODELS_PIPELINE_H
#define TERN_MODELS_PIPELINE_H

#include <tern/pipeline.h>

#include "core/context.h"
#include "core/tensor.h"
#include "models/files/architecture.h"
#include "models/files/layout.h"
#include "models/modules/text_encoder.h"
#include "models/modules/unet.h"
#include "models/modules/vae.h"

/* The weights of a component that is in memory. */
struct tern_part {
    struct tern_weights *base;    /* without LoRAs, as a module holds them */
    struct tern_weights *weights; /* what the module is built from: base, or derived from it */
    size_t module, loading;       /* bytes of the module and its tables without what kernels prepare, and what loading took beside
                                   * them for a moment; they stay when the module leaves. 0: LoRAs were set while it was not there,
                                   * so what it will take is not known */
    size_t derived;               /* of the module's: what LoRAs have made, as `module` counts it */
};

/* Which part of the UNet a plan runs, for DeepCache: all; all, and what is deeper than the branch is an output, too; what is shallower,
 * with that as an input. Both have it as (N, H, W, C). */
enum tern_unet_part { TERN_UNET_WHOLE, TERN_UNET_KEEPS, TERN_UNET_SHALLOW };

/* What of the UNet is computed before the steps (hoist.c): what follows from the text, and from the timestep. Bits. */
#define TERN_KNOWN_KINDS 2
enum { TERN_KNOWN_TEXT = 1, TERN_KNOWN_TIME = 2 };

/* What a component's plan is made for. */
struct tern_stage {
    const char *component; /* as in tern_pipeline_graph; static */
    struct tern_graph_size size;
    size_t resident;        /* as in tern_plan_params */
    size_t arena;           /* likewise */
    size_t algorithm_bytes; /* likewise */
    int64_t tokens;         /* of the text, for the UNet; 0: as many as the tokenizer gives */
    bool vectors;           /* the text encoder takes vectors in place of tokens, too */
    enum tern_unet_part part;
    int branch;     /* of the UNet's part */
    int share;      /* of the UNet: rows of the text for each of the sample; 0: one */
    unsigned known; /* of the UNet: what the plan is given because it was computed before; TERN_KNOWN_… */
    unsigned early; /* of the UNet: the plan computes that for one with the same part and branch; 0: it is the one of the steps */
};

/* A plan, and its binding to the weights that the component had when it was last used. */
struct tern_planned {
    struct tern_stage stage;
    struct tern_plan *plan;
    struct tern_weights *weights; /* of the binding; NULL: not bound */
    struct tern_binding *binding;
    uint64_t used; /* by planned_clock */
};
#define TERN_MAX_PLANNED 24

/* A way to live with little memory; limits as in the job. */
struct tern_way {
    bool sequential;
    size_t unet_algorithm, vae_algorithm, resident, arena;
    bool streams_text;
};

/* What the choice of a way depends on, of one pass and of the pipeline. Cleared before it is filled, to be compared as bytes. */
struct tern_pass_kind {
    int width, height, count, branches, share, branch, calls, clip_skip;
    enum tern_sampler sampler;
    int64_t tokens;
    bool guided, zero_negative, conditions, vectors, caches, encodes, previews;
};
struct tern_job_kind {
    struct tern_pass_kind pass[2];
    struct tern_offload_components components;
    enum tern_offload offload;
    bool single_use, keeps_text;
    size_t budget;
};

/* The way that was chosen for a kind of job, and what was told that it needs. */
struct tern_found {
    struct tern_job_kind kind;
    struct tern_way way;
    unsigned known[2]; /* of the passes */
    size_t told;
};
#define TERN_MAX_FOUND 8 /* DeepCache by quality runs up to six kinds of job */

/* Bytes that it has to save to compute what is known before the steps by plans of its own. */
#define TERN_HOIST_LEAST ((int64_t)1 << 20)

/* Channels of a UNet that is told a picture behind the latents of z channels: mask and masked picture, or what is edited. */
#define TERN_INPAINT_CHANNELS(z) (2 * (z) + 1)
#define TERN_EDIT_CHANNELS(z) (2 * (z))

/* What jobs are at most, and what infotexts may say: a side of a picture in pixels, steps, guidance scales. */
#define TERN_MAX_SIDE 8192
#define TERN_MAX_STEPS 1000
#define TERN_MAX_GUIDANCE 1000

#define TERN_XL_NUMBERS 6         /* original size, crop, target size */
#define TERN_XL_REFINER_NUMBERS 5 /* original size, crop, aesthetic score */

/* A LoRA that is set: its file, and copies of what the caller gave. */
struct tern_active_lora;
/* A textual inversion that is set. */
struct tern_active_embedding;
struct tern_conditions;
struct tern_prompt_words;

struct tern_pipeline {
    struct tern_context *ctx;
    struct tern_pipeline_params params;
    size_t supposed; /* the budget while it is found what is enough; 0: that of params and context */
    bool tried; /* by tern_pipeline_optimize: what is too much for the budget need not be told exactly, which takes memory of its own */
    unsigned on_cpu;             /* TERN_MODULE_...: compute there, whatever the context's device is */
    char *name;                  /* of the model, for the infotext */
    char *quantize;              /* params.quantize, or what params.recipe names; NULL: nothing is quantised */
    char *text_encoder_quantize; /* likewise */
    bool shipped;                /* it came with tern */
    struct tern_checkpoint *checkpoint;
    struct tern_checkpoint *shared;        /* lends what the checkpoint lacks (demo-zh: all but the text side); NULL: none */
    struct tern_checkpoint *vae_alone;     /* params.vae; NULL: the checkpoint's */
    struct tern_checkpoint *preview_alone; /* params.preview_vae; NULL: previews are a linear map of the latents */
    struct tern_tokenizer *tokenizer;      /* NULL: the checkpoint has none, and the built-in one does not fit */
    struct tern_tokenizer *tokenizer_2;    /* SDXL's second text encoder has its own; NULL: there is none */
    struct tern_text_encoder *text, *text_2;
    struct tern_unet *unet;
    struct tern_vae *vae, *preview;
    struct tern_part text_part, text_2_part, unet_part, vae_part, preview_part; /* as long as the module is there */
    struct tern_active_lora *loras;
    int n_loras;
    struct tern_active_embedding *embeddings;
    int n_embeddings;
    struct tern_planned planned[TERN_MAX_PLANNED];
    uint64_t planned_clock;
    size_t making; /* the most memory that making a plan took beside it, for a moment, also one that is gone; 0 once a job uses plans */
    struct tern_found found[TERN_MAX_FOUND]; /* by checks, for the job that runs behind them */
    int n_found, next_found;
    size_t reached;        /* the most memory while tern_pipeline_optimize chose it; 0: that did not */
    int text_layers;       /* of the first text encoder */
    int64_t text_width[2]; /* of its states, and those of SDXL's second one; 0: there is none */
    bool second_only;      /* SDXL's refiner: text_encoder_2 is its only text encoder; `tokenizer` is that one's */
    bool xl;               /* SDXL: a UNet that is told the pooled text of the second text encoder, and sizes */
    int numbers;           /* SDXL: how many beside the pooled text, TERN_XL_NUMBERS or TERN_XL_REFINER_NUMBERS; else 0 */
    bool force_zeros;      /* SDXL: a negative prompt that is not given is zeros, not "" */
    bool scales_edited;    /* CosXL edit: the picture that is edited comes in scaled as latents are */
    int64_t hoist_least;   /* TERN_HOIST_LEAST; for comparison INT64_MIN: whatever it takes, INT64_MAX: never */
    int hoist_inputs;      /* most inputs of the UNet's plan with those; TERN_GRAPH_MAX_IO, or fewer for comparison */
    int calls;             /* that are running: callbacks must not take the pipeline or its modules from them */
    int half_made;         /* a module, a plan or a choice of them that is half made: nothing may begin */
    bool trying;           /* tern_pipeline_quantize runs, and plans are those of its trials: no job may take them */
    unsigned used;         /* TERN_MODULE_...: in memory, with weights as kernels want them; the others are there for their shapes alone */
    unsigned held;         /* TERN_MODULE_...: by a call whose callback made the one that runs, which leaves them in memory */
    struct tern_unet_config unet_config;
    struct tern_vae_config vae_config, preview_config; /* the latter if preview_alone is there */
};

/* The component, built when it is not in memory. NULL with the error recorded. Borrowed. */
struct tern_text_encoder *tern_pipeline_text(struct tern_pipeline *p);
struct tern_text_encoder *tern_pipeline_text_2(struct tern_pipeline *p);
struct tern_unet *tern_pipeline_unet(struct tern_pipeline *p);
struct tern_vae *tern_pipeline_vae(struct tern_pipeline *p);
struct tern_vae *tern_pipeline_preview(struct tern_pipeline *p);
/* Sets of modules. */
enum {
    TERN_MODULE_TEXT = 1,
    TERN_MODULE_TEXT_2 = 2,
    TERN_MODULE_UNET = 4,
    TERN_MODULE_PREVIEW = 8,
    TERN_MODULE_VAE = 16,
    TERN_MODULES = 31
};
unsigned tern_module_of(const char *component);
/* generate.c: whether modules may be loaded, and whether a job or the like may begin. Not in the middle of a module or a plan, and not
 * while it is asked whether to cancel another one. */
enum tern_status tern_pipeline_may_load(const struct tern_pipeline *p);
enum tern_status tern_pipeline_may_begin(const struct tern_pipeline *p);
/* Those that are in memory. */
unsigned tern_pipeline_modules(const struct tern_pipeline *p);
/* Takes the modules of a set, or the module, out of memory, with weights and bindings. */
void tern_pipeline_put_out(struct tern_pipeline *p, unsigned modules);
void tern_pipeline_drop_text(struct tern_pipeline *p);
void tern_pipeline_drop_text_2(struct tern_pipeline *p);
void tern_pipeline_drop_unet(struct tern_pipeline *p);
void tern_pipeline_drop_vae(struct tern_pipeline *p);
void tern_pipeline_drop_preview(struct tern_pipeline *p);

/* Whether the stage's plan is there already. */
bool tern_pipeline_has_plan(const struct tern_pipeline *p, const struct tern_stage *stage);
/* Borrowed; NULL with the error recorded, or without one for what tern_hoist_part gives nothing. */
struct tern_plan *tern_pipeline_plan(struct tern_pipeline *p, const struct tern_stage *stage);
/* The same bound to the component's weights: a new reference, so that a callback's own jobs cannot take it away. A shallow UNet is bound
 * beside the one that keeps what it needs. */
struct tern_binding *tern_pipeline_binding(struct tern_pipeline *p, const struct tern_stage *stage);
/* Memory that this binding would take now; 0 when it is there. `beside`: a stage of the same component that will be bound then; or NULL. */
size_t tern_pipeline_bind_bytes(struct tern_pipeline *p, const struct tern_stage *stage, const struct tern_stage *beside);
/* Drops the bindings of a set of weights; their plans stay. */
void tern_pipeline_unbind(struct tern_pipeline *p, const struct tern_weights *weights);
/* Other weights in the place of those. Where plans prepare some (GPUs), and memory has no limit, a binding is made anew at once, with what
 * was prepared of weights that stay; else, and where that fails, it is dropped. */
void tern_pipeline_rebind(struct tern_pipeline *p, const struct tern_weights *former, struct tern_weights *weights);
/* Another plan for a stage than the pipeline would make: that of a trial. It stays until it is dropped. */
void tern_pipeline_put_plan(struct tern_pipeline *p, const struct tern_stage *stage, struct tern_plan *plan);
/* A plan that will not be used, if it is there; all of them. */
void tern_pipeline_drop_plan(struct tern_pipeline *p, const struct tern_stage *stage);
void tern_pipeline_drop_plans(struct tern_pipeline *p);

void tern_part_drop(struct tern_part *part);
/* Memory of the tensors that are in the derived set only. */
size_t tern_part_derived_bytes(const struct tern_part *part);
/* A module from a set of weights; NULL with the error recorded. */
struct tern_text_encoder *tern_pipeline_build_text(struct tern_pipeline *p, const struct tern_weights *w);
struct tern_text_encoder *tern_pipeline_build_text_2(struct tern_pipeline *p, const struct tern_weights *w);
struct tern_unet *tern_pipeline_build_unet(struct tern_pipeline *p, const struct tern_weights *w);

/* The weights of "unet", "text_encoder" or "text_encoder_2" under the LoRAs that are set: a new reference. NULL with the error recorded. */
struct tern_weights *tern_pipeline_with_loras(struct tern_pipeline *p, struct tern_weights *base, const char *component);
void tern_pipeline_drop_loras(struct tern_pipeline *p);
/* " <lora:name:scale>" for each that counts, as AUTOMATIC1111's prompts have it; tern_free. */
char *tern_pipeline_lora_text(const struct tern_pipeline *p);

/* The text encoders are numbers first..end-1: 0, 0 and 1 in SDXL, 1 alone in its refiner. */
static inline int tern_pipeline_first_encoder(const struct tern_pipeline *p) { return p->second_only; }
static inline int tern_pipeline_end_encoders(const struct tern_pipeline *p) { return p->xl ? 2 : 1; }

/* What the model is, of models/files/architecture.h. */
static inline unsigned tern_pipeline_architecture(const struct tern_pipeline *p)
{
    return p->second_only ? TERN_SDXL_REFINER : p->xl ? TERN_SDXL : p->unet_config.linear_projection ? TERN_SD2 : TERN_SD1;
}

/* The names that stand for vectors in texts of an encoder (0 or 1), as the tokenizer of that one reads them; borrowed. */
struct tern_prompt_words tern_pipeline_words(const struct tern_pipeline *p, int encoder);
/* Vector `row` of all embeddings together, as wide as the encoder; borrowed. */
const float *tern_pipeline_vector(const struct tern_pipeline *p, int encoder, int64_t row);
/* The first word whose vectors row is one of. */
int tern_pipeline_word_of(const struct tern_pipeline *p, int encoder, int64_t row);
/* "name: hash, name: hash" of the words that are used, as A1111's "TI hashes"; tern_free. */
char *tern_pipeline_embedding_text(const struct tern_pipeline *p, const bool *used);
void tern_pipeline_drop_embeddings(struct tern_pipeline *p);

/* The checkpoint that holds a component: the pipeline's own, or the shared one for what that lacks; a VAE by itself before both. */
struct tern_checkpoint *tern_pipeline_holder(const struct tern_pipeline *p, const char *component);
/* scheduler_config.json's text; NULL when there is none. */
const char *tern_pipeline_scheduler(const struct tern_pipeline *p);
/* tern_checkpoint_scheduler_class of the model that this text is of. */
const char *tern_pipeline_scheduler_class(const struct tern_pipeline *p);
/* configs.c: what the model is, by its modules, which are brought into memory. Checks that they fit together. */
enum tern_status tern_pipeline_read_configs(struct tern_pipeline *p);
/* tokenizers.c: then those of its text encoders. */
enum tern_status tern_pipeline_load_tokenizers(struct tern_pipeline *p);

/* place.c: params.on_cpu. */
enum tern_status tern_pipeline_read_places(struct tern_pipeline *p);
/* Where a component computes; and what in, since the CPU has no kernels of f16. */
struct tern_device *tern_pipeline_device(const struct tern_pipeline *p, const char *component);
enum tern_dtype tern_pipeline_dtype(const struct tern_pipeline *p, const char *component);
/* tern_device_go to there. */
struct tern_device *tern_pipeline_go(const struct tern_pipeline *p, const char *component);

/* What the VAE computes in: f32 where the others do in f16 and the model is SDXL, whose VAE leaves the range of f16 (TAESD does
 * not). */
enum tern_dtype tern_pipeline_vae_dtype(const struct tern_pipeline *p);
enum tern_dtype tern_pipeline_preview_dtype(const struct tern_pipeline *p);

/* quantized.c: the words of a component whose weights' file says that it is quantised are the pipeline's from now on; others that it has
 * already are an error, and so are words that do not fit the weights, and numbers without words. Returns w, or NULL with it unreferenced;
 * NULL is allowed. */
struct tern_weights *tern_pipeline_follow_file(struct tern_pipeline *p, const char *component, struct tern_weights *w);
/* Words that have no * are names of weights that are there, else the status. (Those of text encoders may be of the other one.) */
enum tern_status tern_pipeline_check_words(struct tern_context *ctx, enum tern_status status, const char *where,
                                           const struct tern_weights *w, const char *words);
/* Those of a recipe: of a UNet that comes quantised they must be the same. */
enum tern_status tern_pipeline_follow_recipe(struct tern_pipeline *p, const char *words);
/* What a text encoder makes, as a graph has it: last_hidden_state, then hidden_states. (component.c) */
enum tern_status tern_text_outputs(const struct tern_text_encoder *m, const struct tern_text_input *in, tern_tensor **out);
/* What tern_pipeline_graph and tern_pipeline_weights give, for calls that have begun. */
struct tern_graph *tern_pipeline_stage_graph(struct tern_pipeline *p, const struct tern_stage *stage);
struct tern_weights *tern_pipeline_module_weights(struct tern_pipeline *p, const char *component);

/* configs.c: what model_index.json says of SDXL's models; of single files, which have none (NULL), as the published base and refiner. */
struct tern_index {
    bool force_zeros, scales_edited; /* as in the pipeline */
};
enum tern_status tern_pipeline_read_index(struct tern_context *ctx, const char *text, bool refiner, struct tern_index *out);

/* SDXL: values of the pooled text. */
int64_t tern_pipeline_pooled_width(const struct tern_pipeline *p);

/* The UNet is one for inpainting, with 9 channels; or edits pictures [Brooks 2022], with 8. */
static inline bool tern_pipeline_inpaints(const struct tern_pipeline *p)
{
    return p->unet_config.in_channels == TERN_INPAINT_CHANNELS(p->vae_config.latent_channels);
}
static inline bool tern_pipeline_edits(const struct tern_pipeline *p)
{
    return p->unet_config.in_channels == TERN_EDIT_CHANNELS(p->vae_config.latent_channels);
}

/* Pixels along one side of a latent pixel: 8. */
int tern_pipeline_scale(const struct tern_pipeline *p);

/* The folder `sub` of the data that ships with tern, known by a file in it: in $TERN_DATA_DIR, beside the library, in the
 * installation, or `source`, the same folder in the source tree. tern_free. NULL without an error when it is nowhere. */
char *tern_data_path(struct tern_context *ctx, const char *sub, const char *file, const char *source);
/* Where "demo" and "demo-zh" are; tern_free. NULL with the error recorded (the places that were tried). */
char *tern_demo_path(struct tern_context *ctx, const char *name);

/* Most rows of the UNet a picture. */
#define TERN_MOST_BRANCHES 34

/* A job: the params with every default filled in, and what the parts hand on. All arrays are tern_alloc'ed and freed by
 * tern_job_destroy. Latents are (count, 4, lh, lw) f32 on the host. */
struct tern_job {
    struct tern_pipeline *p;
    struct tern_txt2img_params params;
    int64_t lh, lw, channels, picture; /* latent size; values of one picture's latents */
    bool guided;                       /* a negative row of the UNet for each picture */
    bool image_guided;                 /* editing: the first one is not told the picture, and a last one is */
    int branches;                      /* rows of the UNet a picture: 1; 2 when guided, more with prompts that are joined and so on */
    int share;      /* of these, those that the UNet is given once: branches, or 1 where more than the text tells them apart */
    int64_t tokens; /* of the text that the UNet sees; 0: as many as the tokenizer gives */
    struct tern_conditions *conditions; /* prompts that are more than one plain text; else NULL */
    struct tern_scheduler *scheduler;
    int begin, until;                 /* first model call, and the one before which the job stops if the sampler has more */
    int counted;                      /* the call from which prompts count: begin, or that of the first of two models */
    struct tern_generator *generator; /* one a picture */
    float *latents, *noise;
    float *image_latents;                 /* inpaint with a 4-channel UNet: the clean picture; editing: what is edited, one for all */
    float *masked_latents;                /* inpaint with a 9-channel UNet: the picture without what is painted anew */
    float *mask;                          /* (lh, lw): 1 is painted anew */
    tern_tensor *context;                 /* (rows, L, D): negative rows first when guided */
    tern_tensor *pooled, *time_ids;       /* SDXL: (rows, P) and (rows, numbers); else NULL */
    bool zero_negative;                   /* SDXL: the negative rows are zeros and no text */
    double start;                         /* tern_now when the job was prepared */
    size_t budget;                        /* the context's, or what its device has if that is less */
    unsigned left;                        /* TERN_MODULE_...: what earlier calls have left, until the way asks that it goes */
    size_t least;                         /* the smallest peak of all ways that were tried */
    size_t predicted;                     /* the peak of the way that was chosen, and of the choice */
    bool forgets;                         /* plans of a way go when another one is tried */
    bool by_device;                       /* predictions are of the memory of the context's device alone */
    unsigned known;                       /* of the UNet, when its weights stay: TERN_KNOWN_… */
    size_t resident;                      /* of the UNet's plan: most bytes of prepared weights to keep; 0: all */
    bool streams_text;                    /* text encoders keep none, unless it is said how they live */
    size_t arena;                         /* of the VAE's plans: what their arena is to keep to; 0: no limit */
    size_t unet_algorithm, vae_algorithm; /* algorithm_bytes of their plans */
    bool sequential;                      /* each component leaves memory after its stage, unless it is said how it lives */
    bool caches;                          /* some calls of the UNet are shallow */
    bool *whole;                          /* those that are not, of the next `planned` calls; NULL: they follow from the interval */
    int planned;
    struct tern_job *hires;           /* the second pass; NULL: there is none */
    const struct tern_job *first;     /* of the second pass; else NULL */
    int skipped;                      /* second pass: steps of params.steps that are not done */
    struct tern_upscaling *upscaling; /* second pass: how its latents become of the first's */
};

/* Fills in defaults and checks everything that can be checked without computing. */
enum tern_status tern_job_prepare(struct tern_job *j, struct tern_pipeline *p, const struct tern_txt2img_params *params);
void tern_job_destroy(struct tern_job *j);
/* The same of one pass alone, in a job that is all zero, or has what tells a second pass. */
enum tern_status tern_job_prepare_pass(struct tern_job *j, struct tern_pipeline *p, const struct tern_txt2img_params *params);

/* hires.c. Makes the second pass that `params`, those of the caller, ask for, if any. */
enum tern_status tern_job_prepare_hires(struct tern_job *j, const struct tern_txt2img_params *params);
/* The pass that the pictures are of. */
static inline struct tern_job *tern_job_last(struct tern_job *j) { return j->hires ? j->hires : j; }
/* Its latents (without noise) of those of the first pass. */
enum tern_status tern_job_upscale(struct tern_job *j);
/* What that takes for a moment. */
size_t tern_job_upscale_bytes(const struct tern_job *j);
/* tern_scheduler_noise_range; of a second pass or model that of all steps, also of those that it does not do, as in
 * AUTOMATIC1111. */
bool tern_job_noise_range(const struct tern_job *j, double *low, double *high);

/* edit.c: a part of the checks; whether there are negative rows; the picture's latents, and noise to start from. */
enum tern_status tern_job_check_edit(const struct tern_job *j);
bool tern_job_is_guided(const struct tern_job *j);
enum tern_status tern_job_start_edit(struct tern_job *j);

/* micro.c: parts of the checks; the scheduler's first and last call; (rows, numbers), negative rows first, NULL with the error recorded. */
enum tern_status tern_job_check_micro(const struct tern_pipeline *p, const struct tern_txt2img_params *q);
enum tern_status tern_job_check_stages(const struct tern_pipeline *p, const struct tern_txt2img_params *q);
/* Of what goes on behind denoising_start, whether what it goes on with is there. */
enum tern_status tern_job_check_begun(const struct tern_job *j);
enum tern_status tern_job_choose_calls(struct tern_job *j);
/* One behind the last call that is known, or that is expected. */
int tern_job_calls(const struct tern_job *j);
int tern_job_expected_calls(const struct tern_job *j);
tern_tensor *tern_job_time_ids(const struct tern_job *j);

/* deepcache.c: the checks; after tern_job_choose_calls which calls of the UNet are whole; and whether one is not. */
enum tern_status tern_job_check_cache(const struct tern_job *j);
enum tern_status tern_job_plan_cache(struct tern_job *j);
bool tern_job_is_shallow(const struct tern_job *j, int call);
/* What a job that caches wants for its shallow calls. */
struct tern_stage tern_job_shallow_stage(const struct tern_job *j);
/* Values of what is kept for a group of pictures. */
int64_t tern_job_deep_values(const struct tern_job *j);

/* How many pictures go through the UNet together; divides their number. */
int tern_job_group(const struct tern_job *j);
/* What the job wants of a component. */
struct tern_stage tern_job_stage(const struct tern_job *j, const char *component);
/* tern_plan_run, told to params.on_kernel. */
enum tern_status tern_job_run_plan(const struct tern_job *j, const char *component, struct tern_binding *b, tern_tensor *const *in,
                                   tern_tensor **out);
/* Gives a stage's binding and the memory of its runs back. */
void tern_job_end_runs(struct tern_binding **binding);

/* ---- prompts: conditions.c, conditions_encode.c, prompt.c */

/* Reads the prompts: sets guided, zero_negative, branches, tokens and conditions. */
enum tern_status tern_job_read_prompts(struct tern_job *j);
void tern_job_free_conditions(struct tern_job *j);
/* Makes `context` and `pooled` those of a call of the UNet; true when they became others. */
bool tern_job_follow_prompt(struct tern_job *j, int call);
/* The branch is told the negative prompt. */
static inline bool tern_job_is_negative(const struct tern_job *j, int branch)
{
    return j->guided && (!branch || (j->image_guided && branch == j->branches - 1));
}
/* The guidance scale that counts for one that was given, or is the default. (job.c) */
double tern_pipeline_cfg(const struct tern_pipeline *p, double cfg);
/* How strongly a branch pulls away from the negative one. */
double tern_job_guidance(const struct tern_job *j, int branch);
/* For the infotext: the shorter of prompt and negative prompt was filled up; brackets say how much something counts. */
bool tern_job_pads_prompt(const struct tern_job *j);
bool tern_job_has_emphasis(const struct tern_job *j);
/* Sets used[i] for each word i of the embeddings that the prompts have. */
void tern_job_mark_embeddings(const struct tern_job *j, bool *used);
/* What all states of the conditions take. */
size_t tern_job_condition_bytes(const struct tern_job *j);

/* One of the two text encoders. */
struct tern_job_encoder {
    const char *component;
    const struct tern_tokenizer *tokenizer;
    struct tern_text_encoder *(*module)(struct tern_pipeline *);
};
struct tern_job_encoder tern_job_encoder(const struct tern_job *j, int i);
/* The states that the UNet is told, of all outputs of the text encoder's graph. */
tern_tensor *tern_job_text_states(const struct tern_job *j, const struct tern_text_encoder *m, tern_tensor *const *out);

/* Warns of plain texts that are longer than the text encoder reads. */
enum tern_status tern_job_tell_cut_texts(const struct tern_job *j);
/* The stages, in this order. */
enum tern_status tern_job_encode_prompt(struct tern_job *j);
enum tern_status tern_job_start_latents(struct tern_job *j);
enum tern_status tern_job_sample(struct tern_job *j);
/* Of the last pass; texts tell of both. */
enum tern_status tern_job_decode(struct tern_job *j, struct tern_image **images);

/* decode.c: "vae_decoder" or "preview_decoder" in use, and host buffers of one picture. End it, also after an error. */
struct tern_decoder {
    const char *component;
    const struct tern_vae_config *config;
    enum tern_dtype dtype;
    struct tern_binding *binding;
    float *pixels;
    uint8_t *rgb;
};
struct tern_decoder tern_decoder_begin(const struct tern_job *j, const char *component);
/* One picture's latents as a picture; NULL with the error recorded. */
struct tern_image *tern_decoder_run(const struct tern_job *j, const struct tern_decoder *d, const float *latents);
void tern_decoder_end(const struct tern_job *j, struct tern_decoder *d);
/* (3, n) about -1..1 -> (n, 3) */
void tern_to_bytes(const float *x, int64_t n, uint8_t *rgb);

/* preview.c: the checks, and what on_preview is shown after a call of the UNet, whose output is guided and not stepped with. */
enum tern_status tern_job_check_preview(const struct tern_job *j);
enum tern_status tern_job_preview(const struct tern_job *j, int call, const float *output);

/* Bytes that the context will hold at most while the job runs, with what it holds now: in all, while it reads prompts, while it samples,
 * and while the VAE encodes or decodes. */
struct tern_job_peak {
    size_t most, encode, sample, vae;
};
enum tern_status tern_job_predict_peak(struct tern_job *j, struct tern_job_peak *peak);
/* What is said of a component alone ("vae_decoder": the VAE); AUTO: nothing. */
enum tern_offload tern_pipeline_offload(const struct tern_pipeline *p, const char *component);
/* Whether a component leaves memory when its stage is done. What another call holds does not. */
bool tern_job_leaves(const struct tern_job *j, const char *component);
/* Takes those out of memory of which the job has it that they leave. (modules.c) */
void tern_job_put_out(const struct tern_job *j, unsigned modules);
/* Sets `sequential`, `resident`, `streams_text`, `arena` and the two `algorithm`s as the pipeline's offload says; when that is automatic,
 * so that the job keeps to the context's budget. Predicts the peak. TERN_E_BUDGET with the least that would do; TERN_E_NO_MEMORY when it is
 * the device that has too little. */
enum tern_status tern_job_choose_offload(struct tern_job *j, size_t *peak);
/* found.c: what a check has found for a job of this kind, borrowed; NULL: none has. Remembers what the job itself has chosen. Forgets all. */
const struct tern_found *tern_job_found(const struct tern_job *j);
void tern_job_remember(const struct tern_job *j);
void tern_pipeline_forget_found(struct tern_pipeline *p);
/* ways.c: how the job keeps to j->budget (0: none), and what it takes so; more than that where no way does. */
enum tern_status tern_job_choose_way(struct tern_job *j, struct tern_job_peak *peak);
/* Whether the UNet streams: as it is said, or else because sampling does not keep to the budget. */
bool tern_job_streams_unet(const struct tern_job *j, const struct tern_job_peak *peak);
/* That of the context or of the pipeline, the smaller one; 0: there is none. */
size_t tern_pipeline_budget(const struct tern_pipeline *p);
/* Calls the caller's callback, which may be NULL; what it does to scopes is undone. */
void tern_choice_tell(struct tern_context *ctx, tern_choice_callback *on_choice, void *user, const char *what, const char *value,
                      const char *why);
/* How the UNet of a job lives, once that is chosen. */
enum tern_offload tern_job_offload(const struct tern_job *j);
/* Tells on_choice how a job lives that has a budget. */
void tern_job_tell_offload(const struct tern_job *j);
/* Fails with what a job would need at least. */
enum tern_status tern_pipeline_over_budget(const struct tern_pipeline *p, size_t least, size_t budget);
/* "none", "sequential" ... */
const char *tern_offload_name(enum tern_offload offload);

/* "/models/sd-v1-5.safetensors" -> "sd-v1-5"; tern_free. */
char *tern_model_name(struct tern_context *ctx, const char *path);
/* AUTOMATIC1111's "parameters" text of picture i; tern_free. */
char *tern_job_infotext(const struct tern_job *j, int i);

/* predict.c: what stands behind the latents of a row of the UNet's input: mask and masked picture, or the picture that is edited; where
 * that guides, the first branch has zeros instead. picture: where the row's picture begins in the latents of all. */
void tern_job_fill_told(const struct tern_job *j, int branch, int64_t picture, float *to);

/* latents.c: a picture at the job's size as (3, h, w) in -1..1; tern_free. NULL with the error recorded. */
float *tern_job_pixels(const struct tern_job *j, const struct tern_image *image);
/* All of init_latents. */
enum tern_status tern_job_read_latents(const struct tern_job *j, float *to);
/* Mean and logarithm of the variance of what the VAE encodes, one picture's latents each, unscaled. TAESD gives the latent itself, as the
 * mean, and no variance. */
enum tern_status tern_job_encode_picture(const struct tern_job *j, const float *pixels, float *mean, float *logvar);
enum tern_status tern_job_start_from_noise(struct tern_job *j);

#endif
