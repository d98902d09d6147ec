/* Names of architectures, for messages. */
#include "models/files/architecture.h"

#include <stddef.h>
#include <stdio.h>

const char *tern_architecture_text(unsigned set, char out[TERN_ARCHITECTURE_TEXT])
{
    static const struct {
        unsigned set;
        const char *text;
    } names[] = {
        {TERN_SD1 | TERN_SD2, "Stable Diffusion 1 or 2"},
        {TERN_SD1, "Stable Diffusion 1"},
        {TERN_SD2, "Stable Diffusion 2"},
        {TERN_SDXL | TERN_SDXL_REFINER, "Stable Diffusion XL or its refiner"},
        {TERN_SDXL, "Stable Diffusion XL"},
        {TERN_SDXL_REFINER, "Stable Diffusion XL's refiner"},
        {TERN_SD3 | TERN_FLUX, "Stable Diffusion 3 or Flux"},
        {TERN_SD3, "Stable Diffusion 3"},
        {TERN_FLUX, "Flux"},
    };
    size_t n = 0;
    if (!set || set == TERN_ALL_ARCHITECTURES) {
        snprintf(out, TERN_ARCHITECTURE_TEXT, "another architecture");
        return out;
    }
    for (size_t i = 0; i < sizeof(names) / sizeof(*names) && n < TERN_ARCHITECTURE_TEXT; i++)
        if ((set & names[i].set) == names[i].set) {
            n += (size_t)snprintf(out + n, TERN_ARCHITECTURE_TEXT - n, "%s%s", n ? ", " : "", names[i].text);
            set &= ~names[i].set;
        }
    return out;
}

unsigned tern_architectures_of_text(int64_t width)
{
    switch (width) {
    case 768:
        return TERN_SD1 | TERN_SDXL | TERN_SD3 | TERN_FLUX;
    case 1024:
        return TERN_SD2;
    case 1280:
        return TERN_SDXL | TERN_SDXL_REFINER | TERN_SD3;
    default:
        return TERN_ALL_ARCHITECTURES;
    }
}
