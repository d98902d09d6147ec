/* Values of a LoRA that are no finite numbers. */
#include <string.h>

#include "core/context.h"
#include "core/tensor.h"
#include "models/files/lora.h"
#include "models/files/weights.h"
#include "ops/resident.h"

/* Bits of the exponent, which infinities and NaN have all of. */
static uint32_t exponent(enum tern_dtype dtype)
{
    return dtype == TERN_F32 ? 0x7F800000 : dtype == TERN_F16 ? 0x7C00 : dtype == TERN_BF16 ? 0x7F80 : 0;
}

static bool all_finite(const void *values, enum tern_dtype dtype, int64_t n)
{
    const uint32_t *wide = values, mask = exponent(dtype);
    const uint16_t *narrow = values;
    bool bad = false;
    if (dtype == TERN_F32)
        for (int64_t i = 0; i < n; i++)
            bad |= (wide[i] & mask) == mask;
    else if (mask)
        for (int64_t i = 0; i < n; i++)
            bad |= (narrow[i] & mask) == mask;
    return !bad;
}

enum tern_status tern_lora_warn_of_values(const struct tern_lora_file *f)
{
    char text[TERN_PRINTABLE] = "";
    int bad = 0;
    for (int part = 0; part < TERN_LORA_PARTS; part++)
        for (int64_t i = 0; i < f->part[part].count; i++)
            for (int role = 0; role < TERN_LORA_ROLES; role++) {
                const int64_t at = f->part[part].module[i].tensor[role] - 1;
                if (at < 0)
                    continue;
                void *copy;
                tern_tensor *t = tern_weights_at(f->weights, at);
                const void *values = tern_host_elements(t, &copy);
                if (!values)
                    return tern_error_status(f->ctx);
                if (!all_finite(values, t->meta.dtype, tern_tensor_numel(t)) && !bad++)
                    tern_lora_name_text(f, at, text);
                tern_free(f->ctx, copy);
            }
    if (bad)
        tern_message(f->ctx, TERN_LOG_WARN,
                     "%s: values of tensor \"%s\"%s are NaN or infinite: so will be what they change, and pictures with it black", f->path,
                     text, bad > 1 ? " and others" : "");
    return TERN_OK;
}
