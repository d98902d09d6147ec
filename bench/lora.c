/* Times a LoRA on a whole model: setting it (with reading its file), changing its scale, removing it: bench_lora MODEL [RANK] [FILE]
 * Writes the LoRA itself, random, for all attention layers, to FILE (default: a temporary one). Public headers only; one JSON
 * object on standard output. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <tern/tern.h>

#include "timing.h"

/* Adds (rows, columns) in f16, as such files have it. */
static bool add(struct tern_context *ctx, struct tern_weights *w, const char *module, const char *end, int64_t rows, int64_t columns)
{
    char name[320];
    const int64_t shape[] = {rows, columns};
    snprintf(name, sizeof(name), "%s.%s.weight", module, end);
    tern_scope_begin(ctx);
    tern_tensor *t = tern_cast(tern_mul_scalar(tern_randn(ctx, 2, shape, (uint64_t)tern_weights_count(w), 0), 0.02), TERN_F16);
    bool ok = t && tern_weights_add(w, name, t) == TERN_OK;
    tern_scope_end(ctx, NULL);
    return ok;
}

static bool is_attention(const char *name)
{
    static const char *const ends[] = {"to_q", "to_k", "to_v", "to_out.0", "q_proj", "k_proj", "v_proj", "out_proj"};
    size_t n = strlen(name) - strlen(".weight");
    if (strlen(name) < strlen(".weight") || strcmp(name + n, ".weight"))
        return false;
    for (size_t i = 0; i < sizeof(ends) / sizeof(*ends); i++)
        if (n > strlen(ends[i]) && !strncmp(name + n - strlen(ends[i]), ends[i], strlen(ends[i])))
            return true;
    return false;
}

/* Number of matrices; -1 when something failed. */
static int64_t write_lora(struct tern_context *ctx, struct tern_pipeline *p, int64_t rank, const char *path)
{
    static const char *const parts[] = {"unet", "text_encoder"};
    struct tern_weights *w = tern_weights_create(ctx);
    bool ok = w != NULL;
    for (int part = 0; part < 2 && ok; part++) {
        const struct tern_weights *of = tern_pipeline_weights(p, parts[part]);
        for (int64_t i = 0; i < tern_weights_count(of) && ok; i++) {
            const char *name = tern_weights_name(of, i);
            const tern_tensor *t = tern_weights_at(of, i);
            char module[256];
            if (!is_attention(name))
                continue;
            snprintf(module, sizeof(module), "%s.%.*s", parts[part], (int)(strlen(name) - strlen(".weight")), name);
            ok = add(ctx, w, module, "lora_A", rank, tern_tensor_size(t, 1)) && add(ctx, w, module, "lora_B", tern_tensor_size(t, 0), rank);
        }
    }
    ok = ok && tern_weights_save(w, path) == TERN_OK;
    int64_t n = ok ? tern_weights_count(w) / 2 : -1;
    tern_weights_unref(&w);
    return n;
}

/* Seconds of one change; negative: it failed. */
static double set(struct tern_pipeline *p, const char *path, double scale, int n)
{
    const struct tern_lora loras[] = {{.path = path, .scale = scale}};
    double start = now();
    return tern_pipeline_set_loras(p, loras, n) == TERN_OK ? now() - start : -1;
}

static bool measure(struct tern_context *ctx, struct tern_pipeline *p, const char *path, int64_t rank)
{
    int64_t matrices = write_lora(ctx, p, rank, path);
    if (matrices < 0)
        return false;
    tern_memory_trim(ctx);
    size_t before = tern_memory_used(ctx);
    double applied = set(p, path, 1, 1);
    tern_memory_trim(ctx);
    size_t with = tern_memory_used(ctx);
    double changed = set(p, path, 0.5, 1), removed = set(p, NULL, 0, 0), again = set(p, path, 1, 1), off = set(p, path, 0, 1);
    tern_memory_trim(ctx);
    if (applied < 0 || changed < 0 || removed < 0 || again < 0 || off < 0)
        return false;
    printf(
        "{\"matrices\": %lld, \"rank\": %lld, \"threads\": %d, \"apply_seconds\": %.3f, \"change_seconds\": %.3f, \"remove_seconds\": "
        "%.4f, "
        "\"apply_again_seconds\": %.3f, \"scale_0_seconds\": %.4f, \"memory_before\": %zu, \"memory_with\": %zu, \"memory_after\": %zu}\n",
        (long long)matrices, (long long)rank, tern_thread_count(ctx), applied, changed, removed, again, off, before, with,
        tern_memory_used(ctx));
    return true;
}

int main(int argc, char **argv)
{
    char temporary[] = "/tmp/tern-lora-XXXXXX";
    long rank = argc > 2 ? strtol(argv[2], NULL, 10) : 16;
    if (argc < 2 || argc > 4 || rank < 1 || rank > 1024) {
        fprintf(stderr, "usage: bench_lora MODEL [RANK] [FILE]\n");
        return 2;
    }
    int fd = argc > 3 ? -1 : mkstemp(temporary);
    const char *path = argc > 3 ? argv[3] : temporary;
    struct tern_context *ctx = tern_context_create(NULL);
    struct tern_pipeline *p = ctx ? tern_pipeline_load(ctx, argv[1], NULL) : NULL;
    bool ok = p && measure(ctx, p, path, rank);
    if (!ok)
        fprintf(stderr, "bench_lora: %s\n", ctx ? tern_error(ctx) : tern_create_error());
    if (fd >= 0) {
        close(fd);
        unlink(path);
    }
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
    return ok ? 0 : 1;
}
