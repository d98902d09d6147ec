/* DeepCache by the quality that is asked for: which interval holds it, and what was found before. */
#ifndef TERN_MODELS_CACHE_AUTO_H
#define TERN_MODELS_CACHE_AUTO_H

#include "models/pipelines/pipeline.h"

/* What was chosen, and the SSIM that was found with it. */
struct tern_cache_choice {
    int interval; /* 1: every call is whole */
    double ssim;
};

/* cache_auto.c: tern_generate and tern_generate_check of params whose cache_quality is not 0. */
struct tern_images *tern_cache_generate(struct tern_pipeline *p, const struct tern_txt2img_params *params);
enum tern_status tern_cache_check(struct tern_pipeline *p, const struct tern_txt2img_params *params, size_t *peak);

/* Prepares the job of all pictures that needs most of those that were checked, and how it lives: with calls that are cut short, where there
 * are any to cut. To be destroyed, also after an error. */
enum tern_status tern_cache_choose(struct tern_pipeline *p, const struct tern_txt2img_params *params, struct tern_job *j, size_t *bytes);

/* The least interval that is tried. */
#define TERN_CACHE_LEAST 2
/* A job whose interval is to be found. */
struct tern_cache_search {
    struct tern_pipeline *p;
    const struct tern_txt2img_params *params; /* the caller's */
    struct tern_job job;                      /* of them, with whole calls alone: checked, and never run */
    int n;                                    /* candidates that can be tried */
    bool single_use;                          /* as the pipeline had it */
    size_t budget;                            /* likewise */
    size_t beside;                            /* the pictures that are compared, and what SSIM takes */
};

/* cache_search.c: the caller's parameters with an interval; 1: whole calls alone. */
struct tern_txt2img_params tern_cache_params(const struct tern_txt2img_params *params, int interval);
/* Sets n: the candidates that leave a call to cut short, and whose whole calls can be laid out. */
enum tern_status tern_cache_count_candidates(struct tern_cache_search *s);
/* Whether the search can end with that: no call is cut short, or one of the candidates holds what was asked for. */
bool tern_cache_is_choice(const struct tern_cache_search *s, const struct tern_cache_choice *choice);
/* The interval by a trial in few steps. */
enum tern_status tern_cache_estimate(const struct tern_cache_search *s, struct tern_cache_choice *choice);
/* The fastest candidate that holds by bisection, as less is lost with a smaller interval. *first: the first picture, made with it. */
enum tern_status tern_cache_measure(const struct tern_cache_search *s, struct tern_cache_choice *choice, struct tern_images **first);
/* The first picture (taken) and the others, made with the interval. */
struct tern_images *tern_cache_rest(const struct tern_cache_search *s, int interval, struct tern_images *first);

/* cache_memory.c: choices of earlier jobs, in the cache folder: one file for each kind of job, that is the model's architecture, what the
 * job starts from, the quality, and of each pass sampler, steps, size and guidance. A file that is damaged, or of another kind, is ignored
 * with one line of the log. */
bool tern_cache_recall(const struct tern_cache_search *s, struct tern_cache_choice *choice);
/* Does nothing but tell the log where it cannot be written. */
void tern_cache_remember(const struct tern_job *j, const struct tern_cache_choice *choice);

/* generate.c: tern_generate and tern_generate_check within such a call: what comes into memory for one stays for those behind it. */
struct tern_images *tern_pipeline_paint(struct tern_pipeline *p, const struct tern_txt2img_params *params);
enum tern_status tern_pipeline_check(struct tern_pipeline *p, const struct tern_txt2img_params *params, size_t *peak);
/* The pictures of both calls as those of one; takes both. NULL with the error recorded. */
struct tern_images *tern_images_join(struct tern_images **first, struct tern_images **rest);

#endif
