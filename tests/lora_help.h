/* What the tests of LoRAs share: files by name, outputs to compare. Failures end the running test. */
#ifndef TERN_TESTS_LORA_HELP_H
#define TERN_TESTS_LORA_HELP_H

#include <tern/tern.h>

/* A file of tests/data/lora (or of another folder beside it: "../lora-xl/a.safetensors"), its scale and blocks. */
struct lora_spec {
    const char *file;
    double scale;
    const struct tern_lora_strength *blocks;
    int n_blocks;
};
void lora_set(struct tern_context *ctx, struct tern_pipeline *p, const struct lora_spec *list, int n);

/* The largest NMSE that is allowed. */
#define LORA_LIMIT 1e-8
#define LORA_MOST 5
/* LoRAs, and the outputs of tests/data with them: `<folder>/<component>.<name>.safetensors` for each component. */
struct lora_case {
    const char *name;
    struct lora_spec lora[LORA_MOST];
    const char *components[3];
};
/* The error of a component with the LoRAs that are set. */
double lora_error(struct tern_context *ctx, struct tern_pipeline *p, const char *folder, const char *component, const char *name);
/* All of them on the model of that path. */
void lora_check_cases(const char *model, const char *folder, const struct lora_case *cases, size_t n);
/* `n` changes among those of the list at random, with strengths by block: outputs before and after are the same, bit by bit, and so is the
 * memory in use. */
void lora_leaves_nothing(const char *model, const struct lora_spec *all, int count, int n);

/* A copy of a model of tests/data/models with f32 weights; damage_remove. */
void lora_wide_model(const char *model, char *folder);

/* A temporary folder (of PATH_SIZE; damage_remove), and a copy of a file of tests/data/lora in it. */
void lora_temporary(char *folder);
void lora_copy(const char *file, const char *folder, const char *name);

/* Writes a LoRA of rank 1 in kohya's form for the first attention of the UNet and of the text encoder, and a 3x3 convolution. */
void lora_synthesise(struct tern_context *ctx, struct tern_pipeline *p, const char *path);

/* The outputs of UNet and text encoders on fixed inputs, bit by bit. */
struct lora_print;
struct lora_print *lora_print(struct tern_context *ctx, struct tern_pipeline *p);
bool lora_print_same(const struct lora_print *a, const struct lora_print *b);
void lora_print_free(struct lora_print **print);

/* The latents of a picture (free()), their number, and its infotext (free()). */
float *lora_latents(struct tern_context *ctx, struct tern_pipeline *p, const struct tern_txt2img_params *q, int64_t *n, char **text);

#endif
