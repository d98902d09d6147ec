/* The models of tests/data/xl, tests/data/pix2pix and tests/data/lcm, which are kept as differences from models/sdxl and models/sd1.
 * Failures end the running test. */
#ifndef TERN_TESTS_XL_HELP_H
#define TERN_TESTS_XL_HELP_H

#include <tern/weights.h>

#define XL_DATA TERN_TEST_DATA "/xl/"

/* The whole model as a diffusers folder, whose path stands in `folder` (of PATH_SIZE): "sdxl", "sdxl-inpaint", "sdxl-refiner",
 * "sdxl-turbo", "sdxl-lightning", "sd1-lcm", "sd1-pix2pix", "sdxl-pix2pix", "sdxl-cosxl". damage_remove. */
void xl_folder(struct tern_context *ctx, const char *name, char *folder);
/* Takes the tensors whose names begin so from a folder's UNet. */
void xl_drop_tensors(struct tern_context *ctx, const char *folder, const char *first);
/* Takes the mid block from a folder's UNet, as BK-SDM's small ones have none. */
void xl_drop_mid_block(struct tern_context *ctx, const char *folder);
/* All tensors of such a folder under the names of a single file; the second text encoder's are diffusers' own conversion. */
struct tern_weights *xl_single(struct tern_context *ctx, const char *name, const char *folder);

#endif
