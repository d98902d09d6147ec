/* The library's messages name fields of its structs; whoever reads them here has given options. */
#include <stdlib.h>
#include <string.h>

#include "command.h"

static const struct {
    const char *field, *option;
} names[] = {
    {"cache_interval", "--deepcache"},
    {"cache_quality", "--quality"},
    {"cache_branch_id", "--deepcache-branch"},
    {"cache_center", "the centre of --deepcache-schedule"},
    {"cache_pow", "the power of --deepcache-schedule"},
    {"hr_scale", "--hires"},
    {"hr_resize", "--hires-size"},
    {"hr_upscaler", "--hires-upscaler"},
    {"hr_second_pass_steps", "--hires-steps"},
    {"denoising_strength", "--hires-strength"},
    {"image_guidance_scale", "--image-cfg"},
    {"init_image", "--init-image"},
    {"mask_image", "the mask of tern inpaint"},
    {"init_latents", "--init-latents"},
    {"clip_skip", "--clip-skip"},
    {"on_cpu", "--on-cpu"},
    {"s_churn", "--s-churn"},
    {"s_tmin", "--s-tmin"},
    {"s_tmax", "--s-tmax"},
    {"s_noise", "--s-noise"},
    {"discard_penultimate_sigma", "--discard-penultimate-sigma"},
    {"original_size", "--original-size"},
    {"target_size", "--target-size"},
    {"crops_coords_top_left", "--crops-coords-top-left"},
    {"negative_original_size", "--negative-original-size"},
    {"negative_target_size", "--negative-target-size"},
    {"negative_crops_coords_top_left", "--negative-crops-coords-top-left"},
    {"aesthetic_score", "--aesthetic-score"},
    {"negative_aesthetic_score", "--negative-aesthetic-score"},
    {"denoising_start", "--denoising-start"},
    {"denoising_end", "--denoising-end"},
    {"smooth_quant", "--smooth-quant"},
    {"tern_prompt_take_loras", "--lora-dir"},
};
#define LONGEST 40 /* of the options */

/* The option in place of the word that begins there, of n characters; NULL: none. */
static const char *option_of(const char *word, size_t n)
{
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (strlen(names[i].field) == n && !strncmp(names[i].field, word, n))
            return names[i].option;
    return NULL;
}

/* Words end at blanks and at what stands behind words, so that no part of a path or of a quoted text is one. */
#define ENDS " \n:,;()"

char *fields_as_options(const char *text)
{
    char *out = malloc(strlen(text) * LONGEST + 1), *to = out;
    while (out && *text) {
        const size_t n = strcspn(text, ENDS), between = strspn(text + n, ENDS);
        const char *option = option_of(text, n);
        const size_t m = option ? strlen(option) : n;
        memcpy(to, option ? option : text, m);
        memcpy(to + m, text + n, between);
        to += m + between;
        text += n + between;
    }
    if (out)
        *to = 0;
    return out;
}
