/* Whole pictures of the golden data: reading a case, running it, comparing. Failures end the running test. */
#ifndef TERN_TESTS_JOB_CASES_H
#define TERN_TESTS_JOB_CASES_H

#include <jansson.h>
#include <tern/pipeline.h>

/* One row of a cases.json; strings are borrowed from it. */
struct job_case {
    const char *name, *model;
    struct tern_txt2img_params params;
    struct tern_image *init, *mask; /* owned */
};

/* `folder`: of tests/data, where the images of the case are. */
struct job_case job_case_read(struct tern_context *ctx, const json_t *row, const char *folder);
void job_case_close(struct job_case *c);

/* tern_generate that must work. */
struct tern_images *job_run(struct tern_context *ctx, struct tern_pipeline *p, const struct tern_txt2img_params *params);
/* The latents as f32; free(). */
float *job_latents(const struct tern_images *images, int64_t *n);
/* Latents and pictures are the same bits: `count` pictures from `first` on in `a`, all of `b`. */
bool job_same(const struct tern_images *a, int first, const struct tern_images *b);

/* The worst of what was compared. */
struct job_worst {
    int cases, pixel;
    double latents;
    char name[64];
};
/* Fails above an NMSE of 1e-6. */
void job_check_latents(const struct tern_images *images, const struct tern_weights *expected, const char *name, struct job_worst *w);
/* Fails when a value differs by more than 1 of 255. */
void job_check_picture(const struct tern_image *image, const uint8_t *expected, int width, int height, const char *name,
                       struct job_worst *w);
/* Runs the case and checks both, latents alone without pictures; one whose name has "default-size" is not told its size. */
void job_check_case(struct tern_context *ctx, struct tern_pipeline *p, struct job_case *c, const struct tern_weights *latents,
                    const struct tern_weights *pictures, struct job_worst *w);
void job_print_worst(const struct job_worst *w);

#endif
