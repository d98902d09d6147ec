/* The memory of prompts that are more than a text: what is predicted is enough, and every allocation may fail. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model_help.h"
#include "support.h"

static struct tern_txt2img_params job(const char *prompt)
{
    return tern_txt2img_params(.prompt = prompt, .width = 16, .height = 16, .steps = 2, .sampler = TERN_SAMPLER_EULER, .seed = 7,
                               .prompt_syntax = TERN_PROMPT_A1111);
}

/* What is predicted is enough: with many chunks, with many rows, and with so many texts that their states are most of it. */
static void the_predicted_budget_is_enough(void **state)
{
    (void)state;
    char texts[8192] = "[0";
    for (int i = 1; i < 400; i++)
        snprintf(texts + strlen(texts), sizeof(texts) - strlen(texts), "|%d", i);
    strcat(texts, "]");
    const char *const prompts[] = {"a BREAK b BREAK c BREAK d BREAK e", "a AND b AND c AND d BREAK e", texts};
    for (int i = 0; i < 3; i++) {
        char path[PATH_SIZE];
        struct tern_txt2img_params q = job(prompts[i]);
        size_t need = 0;
        q.steps = i < 2 ? 10 : 400;
        for (int k = 0; k < 3; k++) { /* the second time the plans are read from disk, and so the third */
            struct tern_context *own = tern_context_create(&(struct tern_context_params){.threads = 1, .budget = k > 1 ? need : 0});
            struct tern_pipeline *of = model_load(own, model_path("sd1", path));
            if (k > 1) {
                struct tern_image *image = tern_txt2img(of, &q);
                if (!image)
                    fail_msg("\"%s\" within %zu bytes: %s", prompts[i], need, tern_error(own));
                assert_true(tern_memory_peak(own) <= need);
                tern_image_destroy(&image);
            } else {
                assert_int_equal(tern_generate_check(of, &q, &need), TERN_OK);
            }
            tern_pipeline_destroy(&of);
            tern_context_destroy(&own);
        }
    }
}

/* A picture with everything that prompts may say: TERN_OK, or what failed. Nothing stays. */
static enum tern_status paint(struct tern_context *ctx, struct tern_pipeline *p)
{
    static const struct tern_prompt_embedding list[] = {{TERN_TEST_DATA "/prompts/a1111.pt", NULL},
                                                        {TERN_TEST_DATA "/prompts/learned.bin", "toy"}};
    struct tern_txt2img_params q = job("a [toy|(cat:1.3):], [dog:bird:0.5] BREAK a1111 AND (toy) :0.5");
    struct tern_prompt_loras l;
    if (tern_prompt_take_loras(ctx, "x <lora:a:0.5:1>", TERN_TEST_DATA "/lora", &l) == TERN_OK &&
        tern_pipeline_set_embeddings(p, list, 2) == TERN_OK)
        tern_generate_check(p, &q, NULL);
    const enum tern_status st = tern_error_status(ctx);
    tern_error_clear(ctx);
    tern_prompt_loras_free(ctx, &l);
    tern_pipeline_set_embeddings(p, NULL, 0);
    tern_error_clear(ctx);
    return st;
}

static void every_failed_allocation_is_reported(void **state)
{
    (void)state;
    char path[PATH_SIZE];
    struct support_allocator a = {0};
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = 1, .allocator = support_failing(&a)});
    struct tern_pipeline *p = model_load(ctx, model_path("sd1", path));
    assert_int_equal(paint(ctx, p), TERN_OK); /* plans are there now */
    const size_t used = tern_memory_used(ctx);
    enum tern_status st = TERN_E_NO_MEMORY;
    int failures = 0;
    for (long i = 1; st; i++, failures++) {
        a.fail_at = a.count + i;
        st = paint(ctx, p);
        a.fail_at = 0;
        if (st && st != TERN_E_NO_MEMORY)
            fail_msg("allocation %ld: %s", i, tern_status_name(st));
        assert_int_equal(tern_memory_used(ctx), used);
    }
    assert_true(failures > 100);
    print_message("%d allocations failed in turn\n", failures);
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
    assert_int_equal(a.live, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_predicted_budget_is_enough),
                                       cmocka_unit_test(every_failed_allocation_is_reported)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
