/* The merges of CLIP's vocabulary inside the library. */
#ifndef TERN_TOKENIZERS_BUILTIN_H
#define TERN_TOKENIZERS_BUILTIN_H

#include <tern/base.h>

#define TERN_CLIP_MERGES 48894

/* All merges, as data/README.md has them; tern_free. NULL with the error recorded. */
uint8_t *tern_clip_merge_planes(struct tern_context *ctx);

static inline uint32_t tern_clip_merge_left(const uint8_t *planes, uint32_t i)
{
    return (uint32_t)planes[i] << 8 | planes[TERN_CLIP_MERGES + i];
}

static inline uint32_t tern_clip_merge_right(const uint8_t *planes, uint32_t i)
{
    return (uint32_t)planes[2 * TERN_CLIP_MERGES + i] << 8 | planes[3 * TERN_CLIP_MERGES + i];
}

#endif
