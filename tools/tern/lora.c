/* The option --lora FILE[:SCALE[:BLOCK=X,...]]. */
#include <stdlib.h>
#include <string.h>

#include "command.h"

/* True when a text can only be meant as a number. */
static bool is_number(const char *text)
{
    size_t n = strspn(text, "+-.0123456789eE");
    return n && !text[n] && strpbrk(text, "0123456789");
}

/* "down=0.5,up.1=0" into the list of a LoRA; names stay in the text, which is cut. */
static int parse_blocks(const struct opt *opt, char *text, struct tern_lora *lora)
{
    int most = 1;
    for (const char *c = text; *c; c++)
        most += *c == ',';
    struct tern_lora_strength *blocks = calloc((size_t)most, sizeof(*blocks));
    if (!blocks)
        return failed("out of memory");
    lora->blocks = blocks;
    for (char *next = text; next; lora->n_blocks++) {
        char *item = strsep(&next, ","), *number = strchr(item, '=');
        if (!number || number == item)
            return usage("option --%s: expected BLOCK=NUMBER, such as down=0.5 or up.1=0, found \"%s\"", opt->name, item);
        *number++ = 0;
        blocks[lora->n_blocks].block = item;
        int code = value_number(opt, number, -100, false, 100, &blocks[lora->n_blocks].scale);
        if (code != GO_ON)
            return code;
    }
    return GO_ON;
}

int lora_add(const struct opt *opt, const char *value, struct lora_options *l)
{
    if (l->count == MOST_LORAS)
        return usage("option --%s: at most %d of them", opt->name, MOST_LORAS);
    struct tern_lora *lora = &l->lora[l->count];
    char *path = strdup(value), *blocks = NULL;
    if (!path)
        return failed("out of memory");
    *lora = (struct tern_lora){.path = path, .scale = 1};
    l->count++;
    /* From behind, because a path may hold colons. */
    char *colon = strrchr(path, ':');
    if (colon && strchr(colon, '=')) {
        *colon = 0;
        blocks = colon + 1;
        colon = strrchr(path, ':');
    }
    int code = blocks ? parse_blocks(opt, blocks, lora) : GO_ON;
    if (code == GO_ON && colon && is_number(colon + 1)) {
        *colon = 0;
        code = value_number(opt, colon + 1, -100, false, 100, &lora->scale);
    }
    if (code == GO_ON && !*path)
        return usage("option --%s: expected FILE or FILE:SCALE, found \"%s\"", opt->name, value);
    return code;
}

int lora_set(struct tern_context *ctx, struct tern_pipeline *p, const struct lora_options *l, const struct tern_prompt_loras *more)
{
    struct tern_lora all[2 * MOST_LORAS];
    int n = l->count;
    memcpy(all, l->lora, (size_t)n * sizeof(*all));
    for (int i = 0; more && i < more->count && n < 2 * MOST_LORAS; i++)
        all[n++] = more->loras[i];
    if (!n || tern_pipeline_set_loras(p, all, n) == TERN_OK)
        return GO_ON;
    return library_failed(ctx, tern_error_status(ctx) == TERN_E_INVALID);
}

static bool same_lora(const struct tern_lora *a, const struct tern_lora *b)
{
    bool same = !strcmp(a->path, b->path) && a->scale == b->scale && a->n_blocks == b->n_blocks;
    for (int i = 0; same && i < a->n_blocks; i++) /* tags tell of the same two blocks */
        same = a->blocks[i].scale == b->blocks[i].scale;
    return same;
}

bool lora_same(const struct tern_prompt_loras *a, const struct tern_prompt_loras *b)
{
    for (int i = 0; i < a->count; i++) {
        int k = 0;
        while (k < b->count && !same_lora(&a->loras[i], &b->loras[k]))
            k++;
        if (k == b->count)
            return false;
    }
    return a->count == b->count;
}

void lora_free(struct lora_options *l)
{
    for (int i = 0; i < l->count; i++) {
        free((void *)(uintptr_t)l->lora[i].path);
        free((void *)(uintptr_t)l->lora[i].blocks);
    }
    l->count = 0;
}
