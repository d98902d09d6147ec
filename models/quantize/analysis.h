/* One run of tern_pipeline_quantize: what its parts share. */
#ifndef TERN_MODELS_QUANTIZE_ANALYSIS_H
#define TERN_MODELS_QUANTIZE_ANALYSIS_H

#include "graph/plan.h"
#include "models/quantize/recipe.h"

/* Longest side at which errors are measured; larger pictures are halved until they keep to it. */
#define TERN_TRIAL_SIDE 256
#define TERN_CALIBRATION_PROMPTS 1024

/* The jobs of all prompts at one size: texts are encoded once, the UNet is traced once. */
struct tern_calibration {
    struct tern_pipeline *p;
    struct tern_txt2img_params job; /* but for prompt and seed */
    const struct tern_quantize_params *params;
    struct tern_stage stage;
    struct tern_graph *graph;
    struct {
        tern_tensor *context, *pooled, *time_ids;
    } * texts;                        /* by prompt */
    struct tern_image *hidden, *mask; /* of a model for inpainting: what its jobs paint anew; NULL */
    int64_t values;                   /* of one prompt's latents */
};
/* from: NULL, or one of the same params at another size, whose texts it takes. */
enum tern_status tern_calibration_open(struct tern_calibration *c, struct tern_pipeline *p, const struct tern_quantize_params *params,
                                       int width, int height, const struct tern_calibration *from);
/* Bytes that its jobs and plans take at most: all layers in floats and in int8, nothing streamed or tiled. 0 with an error recorded. */
size_t tern_calibration_memory(struct tern_calibration *c);
void tern_calibration_close(struct tern_calibration *c);
/* The job of a prompt with its texts, before its first step; tern_job_destroy, also after an error. */
enum tern_status tern_calibration_job(const struct tern_calibration *c, int i, struct tern_job *j);
/* The latents of all prompts, one behind the other, by a UNet in which those layers are int8 (words; NULL: none). pictures: NULL, or one
 * for each prompt, which the caller owns, also after an error. */
enum tern_status tern_calibration_run(struct tern_calibration *c, const char *words, float *latents, struct tern_image **pictures);

/* What is known from an earlier run, and is kept for a later one. */
struct tern_quantize_state {
    struct tern_context *ctx;
    const char *path; /* NULL: it is kept in memory */
    json_t *root;     /* format, version, options, "model", "times", "trials" */
    char model[TERN_KEY_TEXT];
};
/* `options`: borrowed. TERN_E_INVALID when the file is that of a run with others. */
enum tern_status tern_state_open(struct tern_quantize_state *s, struct tern_context *ctx, const char *path, bool restart,
                                 const json_t *options);
/* The plain latents and the layers tell which model it is. TERN_E_INVALID when the file is another's. */
enum tern_status tern_state_model(struct tern_quantize_state *s, const struct tern_recipe *r, const float *latents, int64_t n);
/* A number of least..most by its key. False: it is to be measured; a damaged file's is, too. */
bool tern_state_get(const struct tern_quantize_state *s, const char *key, double least, double most, double *value);
enum tern_status tern_state_put(struct tern_quantize_state *s, const char *key, double value);
/* What was measured of each layer, by its name: seconds in floats, and in int8. False: as above. */
bool tern_state_times(const struct tern_quantize_state *s, const char *name, double seconds[2]);
void tern_state_put_times(struct tern_quantize_state *s, const char *name, const double seconds[2]);
enum tern_status tern_state_save(const struct tern_quantize_state *s);
void tern_state_close(struct tern_quantize_state *s, bool done);

#define TERN_WORST_ERROR 1e30 /* of latents that are no numbers */

/* Layers that were tried together: run->order[first .. first + n - 1]. */
struct tern_unit {
    int first, n;
    double error, saved;
    bool fits, taken;
};

struct tern_quantize_run {
    struct tern_context *ctx;
    struct tern_pipeline *p;
    struct tern_quantize_params params; /* with all defaults */
    struct tern_recipe *recipe;         /* int8: of the trial that runs */
    struct tern_calibration small, large;
    struct tern_quantize_state state;
    float *plain, *latents;              /* of the small calibration: without int8; of the last trial */
    double variance;                     /* of `plain` */
    struct tern_image **before, **after; /* by prompt */
    int *order;                          /* candidates among the recipe's layers, those of a group together */
    int candidates;
    struct tern_unit *unit;
    int units, capacity;
    int done, total; /* for progress */
    double start;
    void (*progress)(const struct tern_progress *, void *); /* the context's, which the jobs do not have meanwhile */
};
void tern_quantize_tell(struct tern_quantize_run *run, int done, int more);

/* smooth.c: factors of all norms that may be divided, into the recipe. The plain latents are there. */
enum tern_status tern_quantize_smooth(struct tern_quantize_run *run);

/* times.c: densities, times of all layers, and which have an int8 kernel (`able`, by layer). */
enum tern_status tern_quantize_measure(struct tern_quantize_run *run, bool *able);
/* A whole call with the layers that the recipe says, and one without, by all passes, in turns: into the recipe's facts. */
enum tern_status tern_quantize_time(struct tern_quantize_run *run);

/* trials.c: candidates in groups; errors of groups and, where they are large, of their halves. */
enum tern_status tern_quantize_group(struct tern_quantize_run *run, const bool *able);
/* Of the layers that are asked for the one with the highest density: what is in its way is in the way of all. */
const struct tern_recipe_layer *tern_quantize_densest(const struct tern_quantize_run *run);
enum tern_status tern_quantize_search(struct tern_quantize_run *run);
enum tern_status tern_quantize_try(struct tern_quantize_run *run, double *error);
/* Measures both halves of a unit, which are units then: it becomes the first, the other stands at the end. */
enum tern_status tern_quantize_split(struct tern_quantize_run *run, int unit);
double tern_quantize_threshold(const struct tern_quantize_run *run, const struct tern_unit *u);

/* choose.c: which units are int8 in the end, verified together. */
enum tern_status tern_quantize_choose(struct tern_quantize_run *run);

#endif
