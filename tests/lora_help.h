/* What the tests of LoRAs share: files by name, outputs to compare. Failures end the running test. */
#ifndef TERN_TESTS_LORA_HELP_H
#define TERN_TESTS_LORA_HELP_H

#include <tern/tern.h>

/* A file of tests/data/lora, its scale and blocks. */
struct lora_spec {
    const char *file;
    double scale;
    const struct tern_lora_strength *blocks;
    int n_blocks;
};
void lora_set(struct tern_context *ctx, struct tern_pipeline *p, const struct lora_spec *list, int n);

/* A copy of the model sd1 with f32 weights; damage_remove. */
void lora_f32_model(char *folder);

/* A temporary folder (of PATH_SIZE; damage_remove), and a copy of a file of tests/data/lora in it. */
void lora_temporary(char *folder);
void lora_copy(const char *file, const char *folder, const char *name);

/* Writes a LoRA of rank 1 in kohya's form for the first attention of the UNet and of the text encoder, and a 3x3 convolution. */
void lora_synthesise(struct tern_context *ctx, struct tern_pipeline *p, const char *path);

/* The outputs of UNet and text encoder on fixed inputs, bit by bit. */
struct lora_print;
struct lora_print *lora_print(struct tern_context *ctx, struct tern_pipeline *p);
bool lora_print_same(const struct lora_print *a, const struct lora_print *b);
void lora_print_free(struct lora_print **print);

/* The latents of a picture (free()), their number, and its infotext (free()). */
float *lora_latents(struct tern_context *ctx, struct tern_pipeline *p, const struct tern_txt2img_params *q, int64_t *n, char **text);

#endif
