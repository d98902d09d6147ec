/* The core's memory: what is counted, budgets, pages and what is kept of them. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "backends/cpu/cpu.h"
#include "core/context.h"
#include "core/tensor.h"
#include "support.h"

static void allocations_are_counted(void **state)
{
    struct tern_context *ctx = support_context();
    size_t idle = tern_memory_used(ctx);
    uint64_t count = tern_memory_allocations(ctx);
    char *a = tern_alloc(ctx, 1000), *b = tern_calloc(ctx, 10, 100), *c = tern_alloc(ctx, 0), *big = tern_alloc(ctx, 5 << 20);
    char *all[] = {a, b, c, big};
    for (int i = 0; i < 4; i++) {
        assert_non_null(all[i]);
        assert_int_equal((uintptr_t)all[i] % 64, 0);
    }
    for (int i = 0; i < 1000; i++)
        assert_int_equal(b[i], 0);
    assert_int_equal(tern_memory_allocations(ctx) - count, 4);
    size_t used = tern_memory_used(ctx) - idle, bytes = 2000 + (5 << 20);
    assert_true(used >= bytes && used <= bytes + 4 * 64);
    memset(a, 7, 1000);
    a = tern_realloc(ctx, a, 3000);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(a[i], 7);
    a = tern_realloc(ctx, a, 10);
    assert_int_equal(a[9], 7);
    tern_free(ctx, tern_realloc(ctx, NULL, 50));
    tern_free(ctx, NULL);
    tern_free(ctx, a);
    tern_free(ctx, b);
    tern_free(ctx, c);
    assert_true(tern_memory_peak(ctx) >= idle + bytes);
    tern_memory_reset_peak(ctx);
    assert_int_equal(tern_memory_peak(ctx), tern_memory_used(ctx));
    tern_free(ctx, big);
    assert_int_equal(tern_memory_used(ctx), idle);
    assert_true(tern_memory_peak(ctx) >= idle + (5 << 20));
    tern_context_destroy(&ctx);
}

#ifndef TERN_HEAP_ONLY
static long resident_pages(void)
{
    long size = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%ld %ld", &size, &resident), 2);
    fclose(f);
    return resident;
}

static void cleared_blocks_take_what_is_written(void **state)
{
    const size_t size = 64 << 20;
    struct tern_context *ctx = support_context();
    long before = resident_pages();
    char *p = tern_calloc(ctx, 1, size);
    assert_non_null(p);
    assert_in_range(resident_pages() - before + 256, 0, 512); /* 1 MiB */
    for (size_t i = 0; i < size; i += 4096)
        assert_int_equal(p[i], 0);
    tern_free(ctx, p);
    tern_context_destroy(&ctx);
}

/* Of a part that begins and ends within pages. */
static void pages_are_there_before_they_are_written(void **state)
{
    const size_t size = 64 << 20, at = 5000;
    struct tern_context *ctx = support_context();
    char *p = tern_alloc(ctx, size);
    assert_non_null(p);
    p[at] = p[size - at] = 7;
    const long before = resident_pages();
    tern_memory_populate(ctx, p + at, size - 2 * at + 1);
    const long more = resident_pages() - before, pages = (long)(size / (size_t)sysconf(_SC_PAGESIZE));
    const int advice = 23; /* MADV_POPULATE_WRITE, which Linux has since 5.14 */
    if (!madvise((char *)((uintptr_t)p & ~(uintptr_t)65535) + (1 << 20), 65536, advice))
        assert_in_range(more, pages - 256, pages + 256);
    assert_int_equal(p[at] + p[size - at], 14);
    tern_memory_populate(ctx, p + at, 10); /* no whole page */
    tern_memory_populate(ctx, p + at, 0);
    tern_free(ctx, p);
    tern_context_destroy(&ctx);
}

/* Bytes that are resident beyond what was there. */
static long grown(long since) { return (resident_pages() - since) * sysconf(_SC_PAGESIZE); }

static char *written(struct tern_context *ctx, size_t size)
{
    char *p = tern_alloc(ctx, size);
    assert_non_null(p);
    memset(p, 1, size);
    return p;
}

/* What is free serves blocks of other sizes, in parts and as the whole again. */
static void free_pages_are_used_again(void **state)
{
    const size_t size = 16 << 20, slack = 1 << 20;
    struct tern_context *ctx = support_context();
    const long before = resident_pages();
    char *whole = written(ctx, size - 64);
    tern_free(ctx, whole);
    assert_int_equal(tern_memory_used(ctx), tern_memory_peak(ctx) - size);
    for (int k = 0; k < 2; k++) { /* those that lie behind are freed last, or first */
        char *half[2];
        for (int i = 0; i < 2; i++)
            half[i] = written(ctx, size / 2 - 64);
        assert_ptr_equal(half[0], whole);
        assert_ptr_equal(half[1], whole + size / 2);
        tern_free(ctx, half[k]);
        tern_free(ctx, half[1 - k]);
        assert_ptr_equal(tern_alloc(ctx, size - 64), whole);
        assert_int_equal(whole[size / 4] + whole[size / 4 * 3], 2); /* no new pages */
        tern_free(ctx, whole);
    }
    assert_in_range(grown(before), size, size + slack);
    char *cleared = tern_calloc(ctx, 1, size / 4); /* of new pages: what is kept is not cleared */
    for (size_t i = 0; i < size / 4; i += 4096)
        assert_int_equal(cleared[i], 0);
    tern_free(ctx, cleared);
    tern_memory_trim(ctx);
    assert_in_range(grown(before) + (long)slack, 0, 2 * slack);
    tern_context_destroy(&ctx);
}

/* What is free goes where it would be more than was ever used. */
static void free_pages_raise_no_peak(void **state)
{
    const size_t size = 8 << 20, slack = 1 << 20;
    struct tern_context *ctx = support_context();
    const long before = resident_pages();
    char *all[4];
    for (int i = 0; i < 4; i++)
        all[i] = written(ctx, size);
    for (int i = 0; i < 4; i += 2)
        tern_free(ctx, all[i]);
    assert_in_range(grown(before), 4 * size, 4 * size + slack);
    char *large = written(ctx, 2 * size + size / 2); /* is in no free part */
    assert_in_range(grown(before) + (long)slack, 4 * size + size / 2, 4 * size + size / 2 + 2 * slack);
    tern_free(ctx, large);
    for (int i = 1; i < 4; i += 2)
        tern_free(ctx, all[i]);
    tern_context_destroy(&ctx);
    assert_in_range(grown(before) + (long)slack, 0, 2 * slack);
}

/* Nor where the blocks that follow are of the heap. */
static void free_pages_make_room_for_small_blocks(void **state)
{
    const size_t size = 64 << 20, slack = 2 << 20;
    struct tern_context *ctx = support_context();
    const long before = resident_pages();
    char *small[100];
    tern_free(ctx, written(ctx, size));
    assert_in_range(grown(before) + (long)slack, size, size + 2 * slack);
    for (int i = 0; i < 100; i++)
        small[i] = written(ctx, 600 << 10);
    assert_in_range(grown(before) + (long)slack, size, size + 2 * slack);
    for (int i = 0; i < 100; i++)
        tern_free(ctx, small[i]);
    tern_context_destroy(&ctx);
}

/* No more is kept than 256 MiB. */
static void free_pages_are_limited(void **state)
{
    const size_t size = 100 << 20, slack = 1 << 20;
    struct tern_context *ctx = support_context();
    const long before = resident_pages();
    char *all[4];
    for (int i = 0; i < 4; i++)
        all[i] = written(ctx, size);
    for (int i = 0; i < 4; i++)
        tern_free(ctx, all[i]);
    assert_in_range(grown(before), (256 << 20) - slack, (256 << 20) + slack);
    tern_context_destroy(&ctx);
    assert_in_range(grown(before) + (long)slack, 0, 2 * slack);
}

/* Whether the system is to give huge pages there: "hg" among the flags of the mapping. */
static bool asks_for_huge_pages(const char *at)
{
    FILE *f = fopen("/proc/self/smaps", "r");
    char line[512];
    unsigned long from, to;
    bool inside = false, found = false;
    assert_non_null(f);
    while (fgets(line, sizeof(line), f)) {
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
            inside = (uintptr_t)at >= from && (uintptr_t)at < to;
        found |= inside && !strncmp(line, "VmFlags:", 8) && strstr(line, " hg");
    }
    fclose(f);
    return found;
}

/* Each piece of a block that a huge page can hold, until one has taken long to come. */
static void huge_pages_are_asked_for(void **state)
{
    const size_t size = 3 * TERN_HUGE_PAGE, page = (size_t)sysconf(_SC_PAGESIZE);
    for (int slow = 0; slow < 2; slow++) {
        struct tern_context *ctx = support_context();
        char *p = tern_alloc(ctx, size);
        assert_non_null(p);
        assert_int_equal(((uintptr_t)p - 64 + page) % TERN_HUGE_PAGE, 0);
        ctx->pages.slow = slow;
        tern_memory_populate(ctx, p, size);
        if (!access("/sys/kernel/mm/transparent_hugepage", F_OK))
            assert_int_equal(asks_for_huge_pages(p + page) || asks_for_huge_pages(p + page + TERN_HUGE_PAGE), !slow);
        tern_free(ctx, p);
        tern_context_destroy(&ctx);
    }
}
#endif

static void sizes_that_overflow_are_refused(void **state)
{
    struct tern_context *ctx = support_context();
    tern_free(ctx, tern_alloc(ctx, 4 << 20)); /* is kept */
    size_t idle = tern_memory_used(ctx), peak = tern_memory_peak(ctx);
    assert_null(tern_alloc(ctx, SIZE_MAX));
    support_error(ctx, TERN_E_NO_MEMORY, "18446744073709551615");
    assert_null(tern_alloc(ctx, SIZE_MAX - 64));
    support_error(ctx, TERN_E_NO_MEMORY, "out of memory");
    assert_null(tern_calloc(ctx, SIZE_MAX / 2, 3));
    support_error(ctx, TERN_E_NO_MEMORY, "9223372036854775807 elements of 3 bytes");
    assert_null(tern_calloc(ctx, (size_t)1 << 33, (size_t)1 << 33));
    support_error(ctx, TERN_E_NO_MEMORY, "8589934592 elements");
    assert_null(tern_alloc(ctx, (size_t)1 << 60));
    support_error(ctx, TERN_E_NO_MEMORY, "1152921504606847040 bytes more");
    assert_int_equal(tern_memory_peak(ctx), peak);
    char *p = tern_alloc(ctx, 16);
    strcpy(p, "kept");
    assert_null(tern_realloc(ctx, p, SIZE_MAX / 2));
    assert_string_equal(p, "kept");
    tern_error_clear(ctx);
    tern_free(ctx, p);
    assert_int_equal(tern_memory_used(ctx), idle);
    tern_context_destroy(&ctx);
}

static void budgets_hold(void **state)
{
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = 1, .budget = 1 << 20});
    size_t idle = tern_memory_used(ctx);
    char *half = tern_alloc(ctx, 1 << 19);
    assert_non_null(half);
    assert_null(tern_alloc(ctx, 1 << 19));
    support_error(ctx, TERN_E_BUDGET, "memory budget of 1048576 bytes reached");
    assert_true(tern_memory_peak(ctx) <= 1 << 20);
    tern_free(ctx, half);
    half = tern_alloc(ctx, (1 << 20) - idle - 64); /* all of it */
    assert_non_null(half);
    assert_int_equal(tern_memory_used(ctx), 1 << 20);
    assert_null(tern_alloc(ctx, 0));
    tern_error_clear(ctx);
    tern_free(ctx, half);
    assert_int_equal(tern_memory_used(ctx), idle);
    static float values[1 << 17];
    const int64_t n = 1 << 17;
    tern_tensor *t = tern_tensor_create(ctx, TERN_F16, 1, &n, NULL);
    half = tern_alloc(ctx, (1 << 20) - tern_memory_used(ctx) - 4096);
    assert_int_equal(tern_tensor_write(t, TERN_F32, values, sizeof(values)),
                     TERN_E_BUDGET); /* by way of a copy: what is returned is what is recorded */
    tern_error_clear(ctx);
    tern_free(ctx, half);
    tern_tensor_unref(&t);
    tern_context_destroy(&ctx);
}

struct greedy {
    struct tern_context *ctx;
    bool done; /* atomic */
};

static void *ask_for_too_much(void *user)
{
    struct greedy *g = user;
    while (!__atomic_load_n(&g->done, __ATOMIC_RELAXED))
        tern_memory_charge(g->ctx, "test", 1 << 20);
    return NULL;
}

/* What one thread is refused is not missing for another. */
static void refusals_take_no_room(void **state)
{
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = 1, .budget = 1 << 20});
    struct greedy g = {.ctx = ctx};
    pthread_t threads[4];
    int refused = 0;
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, ask_for_too_much, &g), 0);
    for (int i = 0; i < 200000; i++) {
        void *p = tern_alloc(ctx, 64);
        refused += !p;
        tern_free(ctx, p);
    }
    __atomic_store_n(&g.done, true, __ATOMIC_RELAXED);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(refused, 0);
    assert_true(tern_memory_peak(ctx) <= 1 << 20);
    tern_context_destroy(&ctx);
}

/* Buffers that are kept for reuse go before an allocation fails, and never raise the peak. */
static void kept_buffers_are_given_back(void **state)
{
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = 1, .budget = 4 << 20});
    const int64_t small[] = {300000}, large[] = {700000}; /* 1.2 and 2.8 MB */
    tern_tensor *t = tern_tensor_create(ctx, TERN_F32, 1, small, NULL), *u = tern_tensor_create(ctx, TERN_F32, 1, small, NULL);
    tern_tensor_unref(&t);
    tern_tensor_unref(&u);
    t = tern_tensor_create(ctx, TERN_F32, 1, large, NULL);
    assert_non_null(t);
    assert_true(tern_memory_peak(ctx) < 700000 * 4 + 100000);
    tern_tensor_unref(&t);
    size_t kept = tern_memory_used(ctx);
    tern_memory_trim(ctx);
    assert_true(kept - tern_memory_used(ctx) >= 700000 * 4);
    tern_context_destroy(&ctx);
}

static void strings_are_copied(void **state)
{
    struct tern_context *ctx = support_context();
    size_t idle = tern_memory_used(ctx);
    char *a = tern_strdup(ctx, "tern"), *b = tern_strndup(ctx, "ternary", 4), *c = tern_sprintf(ctx, "%s-%d", "x", 42),
         *d = tern_sprintf(ctx, "%5000d", 1);
    assert_string_equal(a, "tern");
    assert_string_equal(b, "tern");
    assert_string_equal(c, "x-42");
    assert_int_equal(strlen(d), 5000);
    tern_free(ctx, a);
    tern_free(ctx, b);
    tern_free(ctx, c);
    tern_free(ctx, d);
    assert_int_equal(tern_memory_used(ctx), idle);
    tern_context_destroy(&ctx);
}

/* A block that cannot be had trims what the device keeps: that is not locked while a library is opened. */
static void libraries_are_opened_without_memory(void **state)
{
    struct support_allocator memory = {0};
    const struct tern_context_params params = {.device = "cpu", .threads = 1, .allocator = support_failing(&memory)};
    struct tern_context *ctx = tern_context_create(&params);
    assert_non_null(ctx);
    for (int again = 0; again < 2; again++) {
        memory.fail_at = again ? 0 : memory.count + 1;
        const bool found = tern_cpu_openblas_open(ctx->device);
        assert_true(again || !found);
#ifdef TERN_HAVE_ONEDNN
        assert_int_equal(tern_cpu_onednn_open(ctx->device) != NULL, again);
#endif
        memory.fail_at = 0;
        if (!again)
            support_error(ctx, TERN_E_NO_MEMORY, "out of memory");
    }
    tern_context_destroy(&ctx);
    assert_int_equal(memory.live, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(allocations_are_counted),
#ifndef TERN_HEAP_ONLY
        cmocka_unit_test(cleared_blocks_take_what_is_written),
        cmocka_unit_test(pages_are_there_before_they_are_written),
        cmocka_unit_test(free_pages_are_used_again),
        cmocka_unit_test(free_pages_raise_no_peak),
        cmocka_unit_test(free_pages_make_room_for_small_blocks),
        cmocka_unit_test(free_pages_are_limited),
        cmocka_unit_test(huge_pages_are_asked_for),
#endif
        cmocka_unit_test(sizes_that_overflow_are_refused),
        cmocka_unit_test(budgets_hold),
        cmocka_unit_test(refusals_take_no_room),
        cmocka_unit_test(kept_buffers_are_given_back),
        cmocka_unit_test(strings_are_copied),
        cmocka_unit_test(libraries_are_opened_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
