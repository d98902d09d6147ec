/* What txt2img, img2img and inpaint are told, and the one way in which all three make pictures. */
#ifndef TERN_TOOL_PICTURE_H
#define TERN_TOOL_PICTURE_H

#include <stdio.h>
#include <time.h>

#include "command.h"

/* xl.c: what SDXL adds; pairs are (height, width) and (top, left). */
struct xl_options {
    int original_size[2], crop[2], target_size[2], negative_original_size[2], negative_crop[2], negative_target_size[2];
    double score, negative_score, start, end, refiner_start;
    bool part_given;           /* where the refiner begins */
    char refiner[4096];        /* "": none */
    struct lora_options loras; /* of the refiner */
};
#define OPT_XL (OPT_OWN + 100) /* the first of its options */
extern const struct opt xl_opts[];
int xl_apply(const struct opt *opt, const char *value, struct xl_options *x);
/* Into the parameters of the only model or the first of two; from them into those of the second, but for the latents of the first. */
void xl_first(const struct xl_options *x, struct tern_txt2img_params *p);
void xl_second(const struct xl_options *x, struct tern_txt2img_params *p);

/* deepcache.c */
struct deepcache_options {
    int interval, branch, center; /* center -1: 3 steps in 10 */
    double pow;                   /* 0: uniform */
    const char *needs;            /* an option that was given and needs an interval; NULL: none */
    bool given;                   /* by the command line */
    bool automatic;               /* the interval follows from the quality; branch, center and pow do not count */
    double quality;               /* 0: not given */
};
#define OPT_DEEPCACHE (OPT_OWN + 300) /* the first of its options */
extern const struct opt deepcache_opts[];
int deepcache_apply(const struct opt *opt, const char *value, struct deepcache_options *d);
int deepcache_check(const struct deepcache_options *d);
/* From the parameters of a picture, and into those of a job. */
void deepcache_take(struct deepcache_options *d, const struct tern_txt2img_params *p);
void deepcache_give(const struct deepcache_options *d, struct tern_txt2img_params *p);
/* hires.c: the second pass. check: GO_ON, or USAGE when something is said of it and there is none. */
#define OPT_HIRES (OPT_OWN + 200) /* the first of its options */
extern const struct opt hires_opts[];
struct picture_settings;
int hires_apply(const struct opt *opt, const char *value, struct picture_settings *s);
bool hires_wanted(const struct tern_hires *h);
int hires_check(const struct tern_hires *h);

/* preview.c: FILE[:EVERY], and the callback that writes (user: these options). */
struct preview_options {
    char *path; /* NULL: none */
    int every, count;
    bool failed;              /* a file could not be written */
    struct tern_context *ctx; /* of the job that runs */
};
int preview_set(const struct opt *opt, const char *value, struct preview_options *p);
void preview_write(int step, int steps, int index, const struct tern_image *picture, void *user);

/* offload.c: HOW or COMPONENT=HOW, separated by commas. */
struct offload_options {
    enum tern_offload all;
    struct tern_offload_components components;
    bool given;
};
int offload_apply(const struct opt *opt, const char *text, struct offload_options *o);
int offload_on_cpu(const struct opt *opt, const char *text, const char **out);

struct picture_settings {
    struct run_settings run;
    const char *model;        /* NULL: the demo model */
    const char *image, *mask; /* files or NULL */
    const char *prompt, *negative;
    const char *output, *save_latents, *init_latents, *tokenizer, *vae, *preview_vae, *on_cpu, *profile;
    int width, height; /* 0: of the picture that is given, or the model's own */
    int steps, count;
    double cfg, image_cfg, strength; /* the latter two 0: the library's default */
    uint64_t seed;
    bool seed_given;
    enum tern_sampler sampler;
    enum tern_schedule schedule;
    bool schedule_given; /* by --schedule, not by the name of the sampler */
    bool hires_schedule_given;
    struct tern_sampler_options sampler_options;
    int ensd;
    enum tern_generator_kind generator;
    struct lora_options loras;
    struct embedding_options embeddings;
    enum tern_prompt_syntax prompt_syntax;
    enum tern_emphasis emphasis;
    int clip_skip;
    const char *lora_dir; /* NULL: tags in the prompt are refused */
    const char *from;     /* the picture that is repeated; NULL: none */
    struct tern_infotext infotext;
    struct tern_context *from_ctx; /* that of infotext */
    struct offload_options offload;
    int optimize; /* 0: off; one more than enum tern_goal */
    struct xl_options xl;
    struct tern_hires hires;
    struct preview_options preview;
    struct deepcache_options deepcache;
};

/* prompt.c, sampling.c and picture_options.c, which takes those of all tables. */
#define OPT_SAMPLING (OPT_OWN + 400) /* the first of its options */
extern const struct opt sampling_opts[];
int sampling_apply(const struct opt *opt, const char *value, struct picture_settings *s);
#define OPT_PROMPTS (OPT_OWN + 500) /* likewise */
extern const struct opt prompt_opts[];
int prompt_apply(const struct opt *opt, const char *value, struct picture_settings *s);
/* Warns of A1111's tags of LoRAs in a prompt of the command line (NULL: none) that is plain: there they are text, which is seldom meant. */
void prompt_hint(const struct picture_settings *s, const char *prompt);
extern const struct opt from_text_opts[], from_image_opts[], picture_opts[];
int picture_apply(const struct opt *opt, const char *value, void *settings);

/* Checks what can be checked without the model, loads it, makes the pictures and writes them. Returns the exit code. */
int picture_make(struct picture_settings *s);

/* from.c: settings of the picture `path`, into `s`, which has defaults; `given`: what the command line says. GO_ON or an exit code. */
int from_read(const char *path, const struct picture_settings *given, struct picture_settings *s);
/* Makes both fit together, once the command line has been applied over them, and tells what is not followed. */
void from_fit(struct picture_settings *s, const struct picture_settings *given);
/* One message of what is not followed of something. */
void from_tell(const struct picture_settings *s, const char *of, const char *what);
void from_free(struct picture_settings *s);

/* latents.c: the tensor "latents" of a safetensors file, as f32. NULL after a message or with the library's error. */
tern_tensor *latents_load(struct tern_context *ctx, const char *path);
enum tern_status latents_save(struct tern_context *ctx, const char *path, tern_tensor *latents);

/* trace.c: kernels as they are told (tern_txt2img_params.on_kernel; user: a struct trace), then the file, complete or not at all. */
struct trace {
    char *text;
    size_t size;
    FILE *out;    /* to text */
    double began; /* when the first call did, seconds; 0: none has */
    double after; /* seconds from there to the start of this one */
};
/* Another call of tern_generate begins: its times count from there. */
void trace_call(struct trace *t);
bool trace_begin(struct trace *t);
void trace_kernel(const char *component, const struct tern_step_profile *step, void *user);
int trace_write(struct trace *t, const char *path);
void trace_end(struct trace *t);

/* What one call of tern_generate needs, on one device. */
struct picture_job {
    struct tern_context *ctx;
    struct tern_pipeline *pipeline, *refiner;
    struct tern_image *image, *mask;
    tern_tensor *latents;
    struct tern_images *result;
    struct tern_prompt_loras named; /* LoRAs of the prompt's tags */
    struct tern_prompt_loras hires; /* those of the second pass's, which must be the same */
    struct timespec start;
    struct trace trace;
    const struct picture_settings *settings;
    int code; /* of opening the model */
};

/* picture_check.c: GO_ON or an exit code after a message. */
int picture_check_outputs(const struct picture_settings *s);
int picture_choose_seed(struct picture_settings *s);
/* Pictures and latents, and the size that follows from a picture. */
int picture_load_inputs(struct picture_job *j, struct picture_settings *s);

/* picture_write.c. What the job will be, with the memory that was predicted; a choice that the library made (user: the settings); its end. */
void picture_announce(const struct picture_settings *s, size_t peak);
void picture_tell_choice(const struct tern_choice *c, void *user);
void picture_tell_done(const struct picture_job *j, const struct picture_settings *s);
/* All pictures, and the latents if they are wanted: GO_ON or an exit code after a message. */
int picture_save(struct picture_job *j, const struct picture_settings *s);

/* refiner.c: GO_ON or an exit code after a message. Before the first model paints by `p`, so that the second is known to be one that can
 * go on. */
int refiner_try(struct picture_job *j, const struct picture_settings *s, const struct tern_pipeline_params *params,
                struct tern_txt2img_params p);
/* The second model goes on where the first has ended, which leaves memory. */
int refiner_run(struct picture_job *j, const struct picture_settings *s, const struct tern_pipeline_params *params,
                struct tern_txt2img_params p);

#endif
