/* Tokenizers under strain: endless words, several threads, wrong arguments, no memory. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "models/tokenizers/tokenizer.h"
#include "models/tokenizers/vocab.h"
#include "support.h"

#define LONG ((size_t)1 << 20)

/* Words, marks and markers without end. A tokenizer that looks at a word anew for each of its pieces does not come to an end in the time
 * that a test is given: the square of these lengths is a million million. */
static void test_long_texts(void **state)
{
    (void)state;
    static const char *const units[] = {"a", "supercalifragilistic", "!", "\xcc\x81\xcc\xa7", "\xe4\xb8\xad", "<|endoftext", "1"};
    struct tern_context *ctx = support_context();
    struct tern_tokenizer *const both[] = {tern_tokenizer_clip(ctx, 49407),
                                           tern_tokenizer_load(ctx, TERN_TEST_DATA "/tokenizers/bert-wide")};
    char *text = malloc(LONG);
    assert_true(text && both[0] && both[1]);
    for (size_t i = 0; i < sizeof(units) / sizeof(*units); i++) {
        const size_t length = strlen(units[i]), n = LONG / length * length;
        for (size_t k = 0; k < n; k++)
            text[k] = units[i][k % length];
        for (int k = 0; k < 2; k++) {
            int32_t *ids;
            int64_t count;
            assert_int_equal(tern_tokenize_text(both[k], text, n, &ids, &count), TERN_OK);
            assert_true(count >= 2 && ids[0] == tern_tokenizer_begin_id(both[k]) && ids[count - 1] == tern_tokenizer_end_id(both[k]));
            tern_tokenizer_free_ids(both[k], ids);
        }
    }
    free(text);
    for (int k = 0; k < 2; k++)
        tern_tokenizer_destroy(&(struct tern_tokenizer *){both[k]});
    tern_context_destroy(&ctx);
}

static void *tokenize_many(void *arg)
{
    const struct tern_tokenizer *t = arg;
    static const int32_t expected[] = {49406, 320, 1125, 539, 320, 2368, 49407};
    long wrong = 0;
    for (int i = 0; i < 500; i++) {
        int32_t *ids;
        int64_t count;
        wrong += tern_tokenize(t, "A Photo of a CAT", &ids, &count) || count != 7 || memcmp(ids, expected, sizeof(expected));
        tern_tokenizer_free_ids(t, ids);
    }
    return (void *)wrong;
}

static void test_threads(void **state)
{
    (void)state;
    struct tern_context *ctx = support_context();
    struct tern_tokenizer *t = tern_tokenizer_clip(ctx, 49407);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, tokenize_many, t), 0);
    for (int i = 0; i < 4; i++) {
        void *wrong = NULL;
        pthread_join(threads[i], &wrong);
        assert_null(wrong);
    }
    tern_tokenizer_destroy(&t);
    tern_context_destroy(&ctx);
}

static void test_arguments(void **state)
{
    (void)state;
    struct tern_context *ctx = support_context();
    int32_t *ids;
    int64_t count;
    assert_null(tern_tokenizer_clip(ctx, 1));
    support_error(ctx, TERN_E_INVALID, "found 1");
    assert_null(tern_tokenizer_clip(NULL, 0));
    assert_null(tern_tokenizer_load(ctx, NULL));
    support_error(ctx, TERN_E_INVALID, "found NULL");
    struct tern_tokenizer *t = tern_tokenizer_clip(ctx, 0);
    assert_int_equal(tern_tokenize(t, NULL, &ids, &count), TERN_E_INVALID);
    support_error(ctx, TERN_E_INVALID, "found NULL");
    assert_int_equal(tern_tokenize_padded(t, "a", NULL), TERN_E_INVALID);
    support_error(ctx, TERN_E_INVALID, "found NULL");
    assert_int_equal(tern_tokenize(NULL, "a", &ids, &count), TERN_E_INVALID);
    tern_tokenizer_free_ids(t, NULL);
    tern_tokenizer_destroy(&t);
    tern_tokenizer_destroy(&t);
    tern_tokenizer_destroy(NULL);
    tern_context_destroy(&ctx);
}

/* Each allocation fails once: an error, nothing lost, and the context goes on. */
static void test_no_memory(void **state)
{
    (void)state;
    struct support_allocator memory = {0};
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = 1, .allocator = support_failing(&memory)});
    assert_non_null(ctx);
    struct tern_tokenizer *t = NULL;
    long start = memory.live, tries = 0;
    for (; !t && tries < 50; tries++) {
        memory.fail_at = memory.count + 1 + tries;
        t = tern_tokenizer_clip(ctx, 0);
        if (!t) {
            support_error(ctx, TERN_E_NO_MEMORY, "out of memory");
            assert_int_equal(memory.live, start);
        }
    }
    assert_true(t && tries > 5);
    enum tern_status st = TERN_E_NO_MEMORY;
    start = memory.live;
    for (tries = 0; st && tries < 100; tries++) {
        int32_t *ids;
        int64_t count;
        memory.fail_at = memory.count + 1 + tries;
        st = tern_tokenize(t, "Caf\xc3\xa9 <|endoftext|> don't e\xcc\x81\xcc\xa7 supercalifragilistic", &ids, &count);
        if (st)
            support_error(ctx, TERN_E_NO_MEMORY, "out of memory");
        tern_tokenizer_free_ids(t, ids);
        assert_int_equal(memory.live, start);
    }
    assert_true(!st && tries > 5);
    memory.fail_at = 0;
    tern_tokenizer_destroy(&t);
    tern_context_destroy(&ctx);
    assert_int_equal(memory.live, 0);
}

/* Pieces whose hashes are the same in all bits that a table of their number uses: each would be looked for among all before it. */
static void test_colliding_pieces(void **state)
{
    (void)state;
    const size_t n = 3000;
    const uint32_t mask = 8191;
    struct tern_context *ctx = support_context();
    struct tern_vocab v = {.ctx = ctx};
    assert_true(tern_vocab_reserve(&v, n, n * sizeof(uint32_t)) && v.mask == mask);
    size_t found = 0;
    bool taken = true;
    for (uint32_t text = 1; taken && found < n && text; text++) {
        const uint32_t hash = tern_hash(TERN_HASH_START, &text, sizeof(text));
        if ((hash ^ hash >> 15) & mask)
            continue;
        taken = tern_vocab_put(&v, (const char *)&text, sizeof(text), (int32_t)found);
        found += taken;
    }
    assert_true(!taken && found > 500);
    support_error(ctx, TERN_E_FORMAT, "made to collide");
    tern_vocab_free(&v);
    tern_context_destroy(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_long_texts), cmocka_unit_test(test_threads),   cmocka_unit_test(test_colliding_pieces),
        cmocka_unit_test(test_arguments),  cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
