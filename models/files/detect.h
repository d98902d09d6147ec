/* What the parts of the recognition of single files share. */
#ifndef TERN_MODELS_FILES_DETECT_H
#define TERN_MODELS_FILES_DETECT_H

#include <jansson.h>

#include "models/files/ldm.h"

#define TERN_CLIP_HEAD 64 /* channels of a head in CLIP; in UNets since SD 2 as well */
#define TERN_DETECT_LEVELS 8
#define TERN_DETECT_LAYERS 16
#define TERN_DETECT_FIRST "model.diffusion_model.input_blocks.0.0.weight" /* that every single file has */

struct tern_detector {
    struct tern_context *ctx;
    const struct tern_weights *w;
    const char *where;
};

/* The tensor of a name that is put together, NULL when there is none. */
const tern_tensor *tern_detect_get(const struct tern_detector *d, const char *fmt, ...) TERN_PRINTF(2, 3);
/* A size of it; 0 when there is none. */
int64_t tern_detect_size(const tern_tensor *t, int dim);
/* Heads of 64 channels; a smaller width is one head. 0: no multiple. */
int64_t tern_detect_heads(int64_t width);
/* Groups of the norms: 32, or what of it divides all levels in smaller models. 0: a level without channels. */
int tern_detect_groups(const int64_t *channels, int levels);
json_t *tern_detect_ints(const int64_t *values, int n);
/* Records that the file is damaged or of an unknown variant. */
enum tern_status tern_detect_odd(const struct tern_detector *d, const char *what);
/* A JSON text in the context's memory; takes the object over. NULL with the error recorded. */
char *tern_detect_dump(struct tern_context *ctx, json_t *o);

/* Each fills its part of `out`, whose family is known. */
enum tern_status tern_detect_unet(const struct tern_detector *d, struct tern_detected *out);
/* The text encoders, when the file has some: CLIP by OpenAI's names or by OpenCLIP's. */
enum tern_status tern_detect_text(const struct tern_detector *d, struct tern_detected *out);

/* Width of the pooled text of an OpenCLIP whose names begin so; 0: it has none. */
int64_t tern_detect_pooled(const struct tern_detector *d, const char *prefix);

/* Whether the UNet predicts v, else the noise: as the file says, or `by_weights` where it says nothing. May record an error. */
bool tern_detect_predicts_v(const struct tern_detector *d, bool by_weights);

/* scheduler_config.json of the published models; NULL with the error recorded. */
char *tern_detect_scheduler_sd1(struct tern_context *ctx, bool v);
char *tern_detect_scheduler_sd2(struct tern_context *ctx, bool v);
char *tern_detect_scheduler_xl(const struct tern_detector *d, bool v);

#endif
