/* Prompts as AUTOMATIC1111's users write them: what weighs how much, what holds at which step, how tokens fall into chunks.
 * docs/prompts.md says what the syntax means. A prompt has been through tern_prompt_check before anything else reads it. */
#ifndef TERN_MODELS_PROMPTS_H
#define TERN_MODELS_PROMPTS_H

#include <tern/tokenizer.h>

/* Most bytes of a prompt, and brackets that are open at once: far more than people write, few enough for every step of a long job. */
#define TERN_PROMPT_BYTES 65536
#define TERN_PROMPT_DEPTH 1000
/* Most chunks of a prompt. */
#define TERN_PROMPT_CHUNKS 128

/* TERN_E_INVALID when a text is too long, too deep, or no UTF-8. `what` names it: "prompt". */
enum tern_status tern_prompt_check(struct tern_context *ctx, const char *what, const char *text);

/* Where `word` stands alone at or behind `from`; SIZE_MAX: nowhere. */
size_t tern_prompt_find_word(const char *text, size_t size, size_t from, const char *word);
/* Bytes of white space from text[0] on, and before text[size]. */
size_t tern_prompt_space(const char *text, size_t size);
size_t tern_prompt_space_before(const char *text, size_t size);

/* Whether all of a text is a number such as "-1.5e1". */
bool tern_prompt_is_number(const char *s, size_t size);
/* The number that a text begins with, whatever the locale. */
double tern_prompt_number(const char *text);

/* ---- attention.c: (more), [less], (as much as that:1.3), BREAK */

struct tern_span {
    size_t begin, size; /* in `text` */
    double weight;
};
struct tern_spans {
    struct tern_context *ctx;
    char *text;
    struct tern_span *at;
    size_t count; /* at least 1 */
};
/* TERN_E_INVALID for a weight that is no finite number. Free also after an error. */
enum tern_status tern_prompt_attention(struct tern_context *ctx, const char *text, struct tern_spans *out);
void tern_spans_free(struct tern_spans *s);
/* Whether a span ends the chunk. */
bool tern_span_is_break(const struct tern_spans *s, size_t i);

/* ---- networks.c */

/* TERN_E_INVALID when a text has a tag <kind:...>. */
enum tern_status tern_prompt_refuse_tags(struct tern_context *ctx, const char *what, const char *text);

/* ---- schedule.c: [from:to:when], [a|b] */

struct tern_scheduled {
    int end; /* holds up to this step */
    int text;
};
struct tern_prompt_schedule {
    struct tern_context *ctx;
    struct tern_scheduled *parts; /* by end */
    char **texts;                 /* each once */
    int n_parts, n_texts, capacity;
};
/* Of a second pass `before` is the number of steps of the first: whole numbers count on from there, parts from 1. Else 0. */
enum tern_status tern_prompt_schedule(struct tern_context *ctx, const char *text, int steps, int before, struct tern_prompt_schedule *out);
/* The same of a text without such syntax: it holds all the time. */
enum tern_status tern_prompt_schedule_plain(struct tern_context *ctx, const char *text, struct tern_prompt_schedule *out);
void tern_prompt_schedule_free(struct tern_prompt_schedule *s);
/* The part that holds at a call of the UNet, counted from 0. */
const struct tern_scheduled *tern_prompt_schedule_at(const struct tern_prompt_schedule *s, int call);

/* ---- compose.c: a cat AND a dog :0.5 */

struct tern_subprompt {
    char *text;
    double weight;
};
#define TERN_MOST_SUBPROMPTS 32
/* Their number; 0 with the error recorded. The texts are the caller's, also after an error: tern_free. */
int tern_prompt_compose(struct tern_context *ctx, const char *text, struct tern_subprompt out[TERN_MOST_SUBPROMPTS]);

/* ---- chunks.c */

/* A text as the encoder reads it: `count` chunks of `length` ids, begin and end tokens among them. An id below 0 is vector -1 - id of the
 * embeddings. */
struct tern_chunks {
    struct tern_context *ctx;
    int64_t count, length;
    int64_t *ids;
    float *weights;
    int64_t tokens; /* of a plain text before it is cut off, begin and end among them */
};
/* A word that stands for vectors. */
struct tern_prompt_word {
    const char *name;
    int32_t *ids; /* the name's own tokens */
    int64_t n_ids;
    int64_t first, vectors; /* rows of the table of all vectors */
};
struct tern_prompt_words {
    const struct tern_prompt_word *at;
    int count;
};
/* Ids of a text without begin and end tokens, as A1111 has them: where padding has a token of its own (OpenCLIP), no text stands
 * for a token. Free ids with tern_tokenizer_free_ids. */
enum tern_status tern_prompt_tokens(const struct tern_tokenizer *t, const char *text, size_t size, int32_t **ids, int64_t *count);
/* A1111's chunks. Free also after an error. */
enum tern_status tern_prompt_chunks(const struct tern_tokenizer *t, const char *text, const struct tern_prompt_words *words,
                                    struct tern_chunks *out);
/* One chunk of a text that says nothing but itself, cut off at its end; names of words are found as diffusers' tokenizer finds them. */
enum tern_status tern_prompt_plain_chunk(const struct tern_tokenizer *t, const char *text, const struct tern_prompt_words *words,
                                         struct tern_chunks *out);
void tern_chunks_free(struct tern_chunks *c);

#endif
