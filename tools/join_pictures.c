/* Joins pictures of one size to a sheet, row by row: join_pictures COLUMNS OUT PICTURE... For tools/contact-sheet; on the
 * public headers alone. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tern/tern.h>

#define GAP 4 /* pixels between pictures, white */

/* Copies a picture to column, row of the sheet. */
static void place(uint8_t *sheet, size_t sheet_width, const struct tern_image *image, size_t column, size_t row)
{
    size_t width = (size_t)tern_image_width(image), height = (size_t)tern_image_height(image);
    uint8_t *at = sheet + 3 * (row * (height + GAP) * sheet_width + column * (width + GAP));
    for (size_t y = 0; y < height; y++)
        memcpy(at + 3 * y * sheet_width, tern_image_data(image) + 3 * y * width, 3 * width);
}

/* The sheet's size and pixels are made when the first picture is known: all must be like it. */
static struct tern_image *join(struct tern_context *ctx, size_t columns, char **paths, size_t n)
{
    size_t rows = (n + columns - 1) / columns, width = 0, height = 0;
    uint8_t *sheet = NULL;
    struct tern_image *out = NULL, *image = NULL;
    for (size_t i = 0; i < n; i++, tern_image_destroy(&image)) {
        if (!(image = tern_image_load(ctx, paths[i])))
            goto end;
        if (!sheet) {
            width = (size_t)tern_image_width(image);
            height = (size_t)tern_image_height(image);
            size_t bytes = 3 * (columns * (width + GAP) - GAP) * (rows * (height + GAP) - GAP);
            if (!(sheet = malloc(bytes)))
                goto end;
            memset(sheet, 255, bytes);
        }
        if ((size_t)tern_image_width(image) != width || (size_t)tern_image_height(image) != height) {
            fprintf(stderr, "join_pictures: %s: expected %zu x %zu, found %d x %d\n", paths[i], width, height, tern_image_width(image),
                    tern_image_height(image));
            goto end;
        }
        place(sheet, columns * (width + GAP) - GAP, image, i % columns, i / columns);
    }
    out = tern_image_create(ctx, (int)(columns * (width + GAP) - GAP), (int)(rows * (height + GAP) - GAP), sheet);
end:
    tern_image_destroy(&image);
    free(sheet);
    return out;
}

int main(int argc, char **argv)
{
    long columns = argc > 3 ? strtol(argv[1], NULL, 10) : 0;
    if (columns < 1 || columns > 64) {
        fprintf(stderr, "usage: join_pictures COLUMNS OUT PICTURE...   (1 to 64 columns)\n");
        return 2;
    }
    struct tern_context *ctx = tern_context_create(NULL);
    struct tern_image *sheet = ctx ? join(ctx, (size_t)columns, argv + 3, (size_t)argc - 3) : NULL;
    bool ok = sheet && tern_image_save(sheet, argv[2]) == TERN_OK;
    if (!ok && !(ctx && !tern_error(ctx)[0])) /* else it was told */
        fprintf(stderr, "join_pictures: %s\n", ctx ? tern_error(ctx) : tern_create_error());
    tern_image_destroy(&sheet);
    tern_context_destroy(&ctx);
    return ok ? 0 : 1;
}
