/* What is checked and chosen before a model is loaded: files, seed, size. */
#include <stdlib.h>
#include <sys/random.h>

#include "picture.h"

/* A picture above this many pixels does not set the size by itself: a photograph would ask for hours and gigabytes. */
#define OWN_SIZE_PIXELS (2 << 20)

int picture_check_outputs(const struct picture_settings *s)
{
    const char *paths[2 + 2 * TERN_MAX_PICTURES] = {s->save_latents, s->profile};
    char *pictures[2 * TERN_MAX_PICTURES]; /* and their previews */
    const int most = s->preview.path ? 2 * s->count : s->count;
    int code = GO_ON, n = 0;
    for (; code == GO_ON && n < most; n++)
        if (!(paths[2 + n] = pictures[n] = output_name(n < s->count ? s->output : s->preview.path, n % s->count, s->count)))
            code = failed("out of memory");
    if (code == GO_ON)
        code = output_check_all(paths, 2 + n);
    while (n-- > 0)
        free(pictures[n]);
    return code;
}

int picture_choose_seed(struct picture_settings *s)
{
    uint32_t random;
    if (s->seed_given)
        return GO_ON;
    if (getrandom(&random, sizeof(random), 0) != sizeof(random))
        return failed("the system gives no random seed; --seed N chooses one");
    s->seed = random; /* PyTorch's CPU generator uses 32 bits, and people write seeds down */
    return GO_ON;
}

/* The size that was not asked for follows from the picture. */
static int choose_size(struct picture_settings *s, const struct tern_image *image)
{
    int64_t w = tern_image_width(image), h = tern_image_height(image);
    if (s->width && s->height)
        return GO_ON;
    if (!s->width && !s->height && w * h > OWN_SIZE_PIXELS)
        return usage("%s has %lld x %lld pixels; give the size to work in, for example -W 512 -H 512", s->image, (long long)w,
                     (long long)h);
    int64_t width = s->width ? s->width : s->height ? w * s->height / h : w;
    int64_t height = s->height ? s->height : s->width ? h * s->width / w : h;
    width = width / 8 * 8;
    height = height / 8 * 8;
    if (width < 8 || height < 8 || width > 8192 || height > 8192)
        return usage("%s has %lld x %lld pixels: no size from 8 to 8192 follows from it; give -W and -H", s->image, (long long)w,
                     (long long)h);
    s->width = (int)width;
    s->height = (int)height;
    return GO_ON;
}

int picture_load_inputs(struct picture_job *j, struct picture_settings *s)
{
    if (s->image && !(j->image = tern_image_load(j->ctx, s->image)))
        return library_failed(j->ctx, false);
    if (s->mask && !(j->mask = tern_image_load_mask(j->ctx, s->mask)))
        return library_failed(j->ctx, false);
    if (s->init_latents && !(j->latents = latents_load(j->ctx, s->init_latents)))
        return FAILED;
    return j->image ? choose_size(s, j->image) : GO_ON;
}
