/* The architectures of models, as sets: what is known of a file leaves some of them. */
#ifndef TERN_MODELS_FILES_ARCHITECTURE_H
#define TERN_MODELS_FILES_ARCHITECTURE_H

#include <stdint.h>

enum { TERN_SD1 = 1, TERN_SD2 = 2, TERN_SDXL = 4, TERN_SDXL_REFINER = 8, TERN_SD3 = 16, TERN_FLUX = 32, TERN_ALL_ARCHITECTURES = 63 };

#define TERN_ARCHITECTURE_TEXT 128
/* "Stable Diffusion 1 or 2"; "another architecture" for all or none. */
const char *tern_architecture_text(unsigned set, char out[TERN_ARCHITECTURE_TEXT]);

/* Those with a CLIP whose states are that wide; all of them for a width that none of them has. */
unsigned tern_architectures_of_text(int64_t width);

#endif
