/* The option --embedding FILE[:NAME]. */
#include <stdlib.h>
#include <string.h>

#include "command.h"

int embedding_add(const struct opt *opt, const char *value, struct embedding_options *e)
{
    if (e->count == MOST_EMBEDDINGS)
        return usage("option --%s: at most %d of them", opt->name, MOST_EMBEDDINGS);
    char *path = strdup(value);
    if (!path)
        return failed("out of memory");
    struct tern_prompt_embedding *x = &e->embedding[e->count++];
    *x = (struct tern_prompt_embedding){.path = path};
    /* From behind, because a path may hold colons; a name has no folder. */
    char *colon = strrchr(path, ':');
    if (colon && !strchr(colon, '/')) {
        *colon = 0;
        x->name = colon + 1;
    }
    if (!*path || (x->name && !*x->name))
        return usage("option --%s: expected FILE or FILE:NAME, found \"%s\"", opt->name, value);
    return GO_ON;
}

int embedding_set(struct tern_context *ctx, struct tern_pipeline *p, const struct embedding_options *e)
{
    if (!e->count || tern_pipeline_set_embeddings(p, e->embedding, e->count) == TERN_OK)
        return GO_ON;
    return library_failed(ctx, tern_error_status(ctx) == TERN_E_INVALID);
}

void embedding_free(struct embedding_options *e)
{
    for (int i = 0; i < e->count; i++)
        free((void *)(uintptr_t)e->embedding[i].path);
    e->count = 0;
}
