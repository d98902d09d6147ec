/* Composable diffusion: prompts joined by AND, each with a weight behind a colon at its end.                  [Liu 2022] */
#include <math.h>
#include <string.h>

#include <tern/context.h>

#include "core/memory.h"
#include "core/status.h"
#include "models/prompts/prompts.h"

/* A text of a sign, digits and at most one point; without digits behind the point it needs some before. */
static bool is_weight(const char *s, size_t size)
{
    const size_t sign = size && (*s == '+' || *s == '-');
    size_t digits = 0, points = 0;
    for (size_t i = sign; i < size; i++) {
        digits += s[i] >= '0' && s[i] <= '9';
        points += s[i] == '.';
    }
    return digits && points <= 1 && sign + digits + points == size;
}

static enum tern_status read_one(struct tern_context *ctx, const char *text, size_t size, struct tern_subprompt *out)
{
    size_t end = size - tern_prompt_space_before(text, size), colon = end;
    *out = (struct tern_subprompt){NULL, 1};
    while (colon && text[colon - 1] != ':')
        colon--;
    const size_t number = colon + tern_prompt_space(text + colon, end - colon);
    if (colon && is_weight(text + number, end - number)) {
        char *copy = tern_strndup(ctx, text + number, end - number);
        out->weight = copy ? tern_prompt_number(copy) : 1;
        tern_free(ctx, copy);
        end = colon - 1;
        end -= tern_prompt_space_before(text, end);
    }
    out->text = tern_strndup(ctx, text, end);
    if (!isfinite((float)out->weight))
        return tern_fail(ctx, TERN_E_INVALID, "prompt: the weight behind its colon is no finite number: %g", out->weight);
    return tern_error_status(ctx);
}

int tern_prompt_compose(struct tern_context *ctx, const char *text, struct tern_subprompt out[TERN_MOST_SUBPROMPTS])
{
    static const char word[] = "AND";
    const size_t size = strlen(text);
    size_t begin = 0, at;
    int n = 0;
    memset(out, 0, TERN_MOST_SUBPROMPTS * sizeof(*out));
    do {
        if (n == TERN_MOST_SUBPROMPTS) {
            tern_fail(ctx, TERN_E_INVALID, "prompt: more than %d texts are joined by AND", TERN_MOST_SUBPROMPTS);
            return 0;
        }
        at = tern_prompt_find_word(text, size, begin, word);
        if (read_one(ctx, text + begin, (at == SIZE_MAX ? size : at) - begin, &out[n++]))
            return 0;
        begin = at + strlen(word);
    } while (at != SIZE_MAX);
    return n;
}
