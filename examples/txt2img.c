/* Makes a picture from a prompt: txt2img PROMPT OUT.png [MODEL]
 * cc txt2img.c $(pkg-config --cflags --libs tern) -o txt2img */
#include <stdio.h>

#include <tern/tern.h>

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: %s PROMPT OUT.png [MODEL]\n", argv[0]);
        return 2;
    }
    struct tern_context *ctx = tern_context_create(NULL);
    if (!ctx) {
        fprintf(stderr, "%s\n", tern_create_error());
        return 1;
    }
    /* Without a MODEL the demo model is loaded. Errors pass through: one look at the end is enough. */
    struct tern_pipeline *p = tern_pipeline_load(ctx, argc > 3 ? argv[3] : NULL, NULL);
    struct tern_image *img = tern_txt2img(p, &tern_txt2img_params(.prompt = argv[1], .seed = 42));
    bool ok = img && tern_image_save(img, argv[2]) == TERN_OK;
    if (ok)
        printf("%s: %d x %d\n", argv[2], tern_image_width(img), tern_image_height(img));
    else
        fprintf(stderr, "%s\n", tern_error(ctx));
    tern_image_destroy(&img);
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
    return ok ? 0 : 1;
}
