/* Options that say what the picture shows, and how that is read. */
#include <string.h>

#include "picture.h"

enum {
    OPT_PROMPT = OPT_PROMPTS,
    OPT_NEGATIVE,
    OPT_SYNTAX,
    OPT_EMPHASIS,
    OPT_CLIP_SKIP,
    OPT_EMBEDDING,
    OPT_LORA_DIR,
    OPT_FROM,
};

const struct opt prompt_opts[] = {
    {OPT_PROMPT, 'p', "prompt", "TEXT", "what the picture shows (needed, or --from; may be \"\")"},
    {OPT_FROM, 0, "from", "PICTURE",
     "repeat a picture: prompts, seed, size, sampler and so on are\nthose that tern or AUTOMATIC1111 wrote into it (PNG, JPEG,\n"
     "WebP); options that are given count instead"},
    {OPT_NEGATIVE, 'n', "negative", "TEXT", "what it does not show (SDXL: not given is not the same\nas empty)"},
    {OPT_SYNTAX, 0, "prompt-syntax", "NAME",
     "plain: prompts are text (default); a1111: (more), [less],\n(text:1.2), [from:to:when], [a|b], AND, BREAK and any length,\n"
     "as AUTOMATIC1111 reads them"},
    {OPT_EMPHASIS, 0, "emphasis", "NAME", "what (text:1.2) does: original (default), no-norm or ignore"},
    {OPT_CLIP_SKIP, 0, "clip-skip", "N",
     "the text encoder's layer that counts, from behind: 1 is the\nlast one (default). SD 2 and SDXL have their own: no effect"},
    {OPT_EMBEDDING, 0, "embedding", "FILE:NAME",
     "a textual inversion and its name in prompts (default: that\nof the file), as often as needed"},
    {OPT_LORA_DIR, 0, "lora-dir", "DIR", "where <lora:NAME:SCALE> in a prompt of a1111's syntax finds\nits file"},
    {0},
};

int prompt_apply(const struct opt *opt, const char *value, struct picture_settings *s)
{
    static const char *const syntaxes[] = {"plain", "a1111", NULL}, *const kinds[] = {"original", "no-norm", "ignore", NULL};
    int choice = 0, code;
    switch (opt->id) {
    case OPT_PROMPT:
        s->prompt = value;
        return GO_ON;
    case OPT_NEGATIVE:
        s->negative = value;
        return GO_ON;
    case OPT_SYNTAX:
        code = value_choice(opt, value, syntaxes, &choice);
        s->prompt_syntax = (enum tern_prompt_syntax)choice;
        return code;
    case OPT_EMPHASIS:
        code = value_choice(opt, value, kinds, &choice);
        s->emphasis = (enum tern_emphasis)choice;
        return code;
    case OPT_CLIP_SKIP:
        return value_int(opt, value, 1, 64, &s->clip_skip);
    case OPT_LORA_DIR:
        s->lora_dir = value;
        return GO_ON;
    case OPT_FROM:
        s->from = value;
        return GO_ON;
    default:
        return embedding_add(opt, value, &s->embeddings);
    }
}

void prompt_hint(const struct picture_settings *s, const char *prompt)
{
    if (prompt && s->prompt_syntax == TERN_PROMPT_PLAIN && strstr(prompt, "<lora:") && !s->run.quiet)
        warn(
            "the prompt's \"<lora:\" is text like the rest; with --prompt-syntax a1111 and --lora-dir it names a LoRA, as --lora FILE does "
            "without a tag");
}
