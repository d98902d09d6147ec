/* Fuzz target: safetensors, and what is made of the names: the recognition of single files and the normal spelling. */
#include "fuzz.h"
#include "models/files/layout.h"
#include "models/files/ldm.h"
#include "models/files/safetensors.h"

static void use(struct tern_context *ctx, const struct tern_weights *w)
{
    static const char *const components[] = {"text_encoder", "unet", "vae"};
    struct tern_detected d;
    for (int i = 0; i < 3; i++) {
        struct tern_weights *n = tern_weights_normalise(ctx, w, components[i]);
        tern_weights_unref(&n);
        tern_error_clear(ctx);
    }
    if (!tern_detect_sd(ctx, w, "fuzz", &d))
        for (int i = 0; i < 3; i++) {
            struct tern_weights *c = tern_ldm_component(ctx, w, &d.sizes, components[i], "fuzz");
            tern_weights_unref(&c);
            tern_error_clear(ctx);
        }
    tern_detected_free(ctx, &d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[] = "fuzz.safetensors";
    struct tern_context *ctx = fuzz_context();
    size_t idle = tern_memory_used(ctx);
    struct tern_mapping m = fuzz_mapping(ctx, data, size, path);
    struct tern_weights *w = tern_weights_create(ctx);
    enum tern_status st = tern_safetensors_read(w, &m);
    fuzz_check_status(ctx, st);
    if (!st) {
        fuzz_touch(w);
        use(ctx, w);
    }
    tern_weights_unref(&w);
    fuzz_end(ctx, &m, idle);
    return 0;
}
