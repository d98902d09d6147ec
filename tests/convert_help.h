/* What the tests of conversions share. Folders have room for PATH_SIZE bytes. */
#ifndef TERN_TESTS_CONVERT_HELP_H
#define TERN_TESTS_CONVERT_HELP_H

#include <tern/tern.h>

/* A copy of a small model, or SDXL's refiner, with the heads that a reader takes single files of such widths to have; damage_remove. */
void convert_copy_model(const char *model, char *folder);
void convert_copy_refiner(struct tern_context *ctx, char *folder);
/* FOLDER/NAME. */
void convert_beside(const char *folder, const char *name, char *out);
/* Of a folder, "." and ".." included. */
int convert_entries(const char *folder);
/* Every component of both checkpoints has the same tensors. */
extern const char *const convert_components[4];
void convert_same_model(struct tern_context *ctx, const char *a, const char *b);
/* Must succeed. */
void convert_well(struct tern_context *ctx, const char *model, const char *out, const struct tern_convert_params *params);

#endif
