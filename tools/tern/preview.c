/* The option --preview FILE[:EVERY]: pictures of a job that samples. */
#include <stdlib.h>
#include <string.h>

#include "picture.h"

int preview_set(const struct opt *opt, const char *value, struct preview_options *p)
{
    free(p->path);
    p->path = strdup(value);
    if (!p->path)
        return failed("out of memory");
    /* From behind, because a path may hold colons; it ends in .png or the like. */
    char *colon = strrchr(p->path, ':');
    p->every = 1;
    if (colon && !strpbrk(colon, "./")) {
        *colon = 0;
        int code = value_int(opt, colon + 1, 1, 1000, &p->every);
        if (code != GO_ON)
            return code;
    }
    return output_check_ending(opt, p->path);
}

/* A disk that is full does not end the job: what cannot be written is said once. */
void preview_write(int step, int steps, int index, const struct tern_image *picture, void *user)
{
    struct preview_options *p = user;
    char *path = output_name(p->path, index, p->count);
    if (!path || p->failed) {
        free(path);
        return;
    }
    interrupt_hold(true);
    p->failed = tern_image_save(picture, path) != TERN_OK;
    interrupt_hold(false);
    if (p->failed) {
        warn("%s; there are no further previews", tern_error(p->ctx));
        tern_error_clear(p->ctx);
    }
    free(path);
}
