/* Latents in another size, as AUTOMATIC1111's latent upscalers make them. */
#ifndef TERN_MODELS_UPSCALE_H
#define TERN_MODELS_UPSCALE_H

#include <tern/base.h>

/* One of torch.nn.functional.interpolate's ways. */
struct tern_upscaler {
    const char *name; /* A1111's: "Latent (bicubic antialiased)" */
    enum { TERN_UPSCALE_NEAREST, TERN_UPSCALE_NEAREST_EXACT, TERN_UPSCALE_BILINEAR, TERN_UPSCALE_BICUBIC } mode;
    bool antialias;
};

/* The first one, "Latent", when name is NULL; NULL when there is none of that name. Case, blanks, brackets, '_' and '-' do not count. */
const struct tern_upscaler *tern_upscaler_find(const char *name);
/* "Latent, Latent (antialiased), …" */
void tern_upscaler_list(char *out, size_t size);

/* Planes of values (rows, columns). */
struct tern_planes {
    int64_t count, rows, columns;
};
/* `from` -> `to` (values of as many planes as `size` has). */
enum tern_status tern_upscale(struct tern_context *ctx, const struct tern_upscaler *u, const struct tern_planes *size, const float *from,
                              int64_t rows, int64_t columns, float *to);
/* The memory that it takes for that. */
size_t tern_upscale_bytes(const struct tern_upscaler *u, const struct tern_planes *size, int64_t rows, int64_t columns);

#endif
