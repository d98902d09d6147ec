/* Copies of the small models in a temporary folder, and ways to damage them. Failures end the running test. */
#ifndef TERN_TESTS_DAMAGE_H
#define TERN_TESTS_DAMAGE_H

#include <jansson.h>
#include <tern/weights.h>

/* Copies tests/data/models/<model>; the path of the copy stands in `folder` (of PATH_SIZE). */
void damage_copy(const char *model, char *folder);
void damage_remove(const char *folder);

/* `file` is relative to the copy, as "unet/config.json". */
void damage_text(const char *folder, const char *file, const void *text, size_t size);
/* The file's bytes, with a NUL behind them; free(). */
char *damage_read(const char *folder, const char *file, size_t *size);
void damage_delete(const char *folder, const char *file);
/* Sets a key of a JSON object, or removes it (value NULL). Takes the value over. */
void damage_json(const char *folder, const char *file, const char *key, json_t *value);
/* Replaces (or adds) a tensor of a safetensors file by zeros of that dtype and shape; ndim < 0 removes it. */
void damage_tensor(struct tern_context *ctx, const char *folder, const char *file, const char *name, enum tern_dtype dtype, int ndim,
                   const int64_t *shape);

#endif
