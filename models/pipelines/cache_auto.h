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

/* cache_memory.c: choices of earlier jobs, in the cache folder: one file for each kind of job, that is the model's architecture, sampler,
 * steps, sizes, guidance and the quality. A file that is damaged, or of another kind, is ignored with one line of the log. */
bool tern_cache_recall(const struct tern_job *j, struct tern_cache_choice *choice);
/* Does nothing but tell the log where it cannot be written. */
void tern_cache_remember(const struct tern_job *j, const struct tern_cache_choice *choice);

/* generate.c: the pictures of both calls as those of one; takes both. NULL with the error recorded. */
struct tern_images *tern_images_join(struct tern_images **first, struct tern_images **rest);

#endif
