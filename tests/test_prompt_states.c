/* The states of the text encoders for prompts in AUTOMATIC1111's syntax, against tools/goldens/a1111.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model_help.h"
#include "models/pipelines/pipeline.h"
#include "support.h"

#define LIMIT 1e-8

static const char *string(const json_t *row, const char *key) { return json_string_value(json_object_get(row, key)); }

static enum tern_emphasis emphasis(const char *name)
{
    return !strcmp(name, "Ignore") ? TERN_EMPHASIS_IGNORE : !strcmp(name, "No norm") ? TERN_EMPHASIS_NO_NORM : TERN_EMPHASIS_ORIGINAL;
}

static double compare(const tern_tensor *found, const struct tern_weights *expected, const char *name)
{
    int64_t n, m;
    float *a = support_values(found, &n), *b = support_f32(expected, name, &m);
    if (n != m)
        fail_msg("%s: %d values, expected %d", name, (int)n, (int)m);
    const double e = support_nmse(a, b, n);
    free(a);
    free(b);
    return e;
}

/* Each text of the row, at the step up to which it holds. */
static double check_states(struct tern_pipeline *p, const json_t *row, const struct tern_weights *expected)
{
    struct tern_job j;
    double worst = 0;
    const struct tern_txt2img_params q = {.prompt = string(row, "prompt"),
                                          .cfg = 1,
                                          .steps = 4,
                                          .sampler = TERN_SAMPLER_EULER,
                                          .prompt_syntax = TERN_PROMPT_A1111,
                                          .emphasis = emphasis(string(row, "emphasis")),
                                          .clip_skip = (int)json_integer_value(json_object_get(row, "clip_skip"))};
    if (tern_job_prepare(&j, p, &q) || tern_job_encode_prompt(&j))
        fail_msg("%s: %s", string(row, "name"), tern_error(p->ctx));
    for (int end = 1; end <= 4; end++) {
        char name[64], pooled[72];
        snprintf(name, sizeof(name), "%s.%d", string(row, "name"), end);
        snprintf(pooled, sizeof(pooled), "%s.pooled", name);
        if (!tern_weights_get(expected, name))
            continue;
        tern_job_follow_prompt(&j, end);
        double e = compare(j.context, expected, name);
        worst = e > worst ? e : worst;
        if (j.pooled) {
            e = compare(j.pooled, expected, pooled);
            worst = e > worst ? e : worst;
        }
    }
    tern_job_destroy(&j);
    return worst;
}

static void states_agree(void **state)
{
    (void)state;
    struct tern_context *ctx = support_context();
    struct tern_weights *expected = support_tensors(ctx, "prompts/states");
    json_t *rows = support_json("prompts/states.json"), *row;
    double worst = 0;
    size_t i;
    json_array_foreach(rows, i, row) {
        char path[PATH_SIZE];
        struct tern_pipeline *p = model_load(ctx, model_path(string(row, "model"), path));
        const double e = check_states(p, row, expected);
        if (!(e <= LIMIT))
            fail_msg("%s: NMSE %.3g, expected at most %g", string(row, "name"), e, LIMIT);
        worst = e > worst ? e : worst;
        tern_pipeline_destroy(&p);
    }
    print_message("%d prompts, worst NMSE %.2g\n", (int)i, worst);
    tern_weights_unref(&expected);
    tern_context_destroy(&ctx);
    json_decref(rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(states_agree)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
