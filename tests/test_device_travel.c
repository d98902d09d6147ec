/* Streamed weights that travel to a GPU beside the launches: the same bits whenever the device copies them, and a status when its calls
 * fail. The argument is the device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "cuda_help.h"
#include "model_help.h"
#include "quantize_help.h"
#include "room_help.h"
#include "support.h"

/* A context with the network, of which no weight is kept. */
struct streamed {
    struct tern_context *ctx;
    struct tern_pipeline *p;
    struct tern_binding *b;
};

static struct streamed load_streamed(struct tern_context *ctx, const char *words)
{
    struct streamed s = {.ctx = ctx};
    s.p = quantize_load(s.ctx, words, NULL, TERN_OFFLOAD_AUTO);
    s.b = tern_pipeline_binding(s.p, &(const struct tern_stage){.component = "unet", .size = room_size, .resident = 1});
    if (!s.b)
        fail_msg("%s", tern_error(s.ctx));
    return s;
}

static struct streamed open_streamed(void) { return load_streamed(room_open(0, NULL), NULL); }

static void unload_streamed(struct streamed *s)
{
    tern_binding_unref(&s->b);
    tern_pipeline_destroy(&s->p);
}

static void close_streamed(struct streamed *s)
{
    unload_streamed(s);
    tern_context_destroy(&s->ctx);
}

/* What a run gives, and what the stand-in of CUDA counts in it. */
static void run_once(const struct streamed *s, float *found, struct standin_counts *counts)
{
    const struct standin_counts before = room_is("cuda") ? cuda_counts() : (struct standin_counts){0};
    model_run(s->b, found, ROOM_VALUES * sizeof(*found));
    if (!room_is("cuda"))
        return;
    *counts = cuda_counts();
    counts->copies_in -= before.copies_in;
    counts->bytes_in -= before.bytes_in;
    counts->copies_beside -= before.copies_beside;
    counts->synchronisations -= before.synchronisations;
}

/* The last of so many. */
static void run_streamed(const struct streamed *s, enum tern_streaming streaming, int runs, float *found, struct standin_counts *counts)
{
    tern_binding_set_streaming(s->b, streaming);
    for (int i = 0; i < runs; i++)
        run_once(s, found, counts);
}

static void check_counts(const struct standin_counts *plain, const struct standin_counts *ahead)
{
    print_message("%zu copies, %zu of them beside launches, %zu waits; in order %zu, %zu\n", (size_t)ahead->copies_in,
                  (size_t)ahead->copies_beside, (size_t)ahead->synchronisations, (size_t)plain->copies_beside,
                  (size_t)plain->synchronisations);
    assert_int_equal(ahead->copies_in, plain->copies_in);
    assert_int_equal(ahead->copies_beside, ahead->copies_in - 4); /* three inputs, and the first weight */
    assert_int_equal(plain->copies_beside, 0);
    /* pinned memory is taken in turns: once for the inputs, once for what goes beside */
    assert_true(ahead->synchronisations <= plain->synchronisations + 2);
}

/* A weight is written while the steps before it are computed, whenever the device does it: as late as it may, or as early. */
static void weights_travel_beside(void **state)
{
    static float in_order[ROOM_VALUES], beside[ROOM_VALUES];
    for (int eager = 0; eager < (room_is("cuda") ? 2 : 1); eager++) {
        struct streamed s = open_streamed();
        struct standin_counts plain = {0}, ahead = {0};
        if (room_is("cuda")) {
            struct standin_facts facts = cuda_facts();
            facts.eager = eager;
            cuda.standin_set_facts(&facts);
        }
        run_streamed(&s, TERN_STREAMING_DEMAND, 1, in_order, &plain);
        run_streamed(&s, TERN_STREAMING_SPILL, 3, beside, &ahead);
        assert_memory_equal(beside, in_order, sizeof(beside));
        if (room_is("cuda"))
            check_counts(&plain, &ahead);
        close_streamed(&s);
    }
}

/* Of weights in few bits what is made of them at the first runs travels in their place from the third on: the same bits. */
static void few_bits_travel(void **state)
{
    static const char *const words[] = {"*:w8", "*:w4", "*"};
    static float anew[ROOM_VALUES], kept[ROOM_VALUES];
    struct tern_context *ctx = room_open(0, NULL);
    for (int i = 0; i < 3; i++) {
        struct streamed s = load_streamed(ctx, words[i]);
        struct standin_counts floats = {0}, run = {0};
        assert_true(tern_plan_facts(s.b->plan).travels > 0);
        run_streamed(&s, TERN_STREAMING_PREPARE, 1, anew, &floats);
        tern_binding_set_streaming(s.b, TERN_STREAMING_SPILL);
        for (int k = 1; k <= 4; k++) {
            run_once(&s, kept, &run);
            assert_memory_equal(kept, anew, sizeof(anew));
            if (!room_is("cuda"))
                continue;
            print_message("%s, run %d: %zu bytes travel, %zu where weights are prepared anew\n", words[i], k, (size_t)run.bytes_in,
                          (size_t)floats.bytes_in);
            assert_true(k < 3 ? run.bytes_in == floats.bytes_in
                              : (double)run.bytes_in < 0.6 * (double)floats.bytes_in); /* vectors are f32 */
        }
        unload_streamed(&s);
    }
    tern_context_destroy(&ctx);
}

/* Of a first run one call fails; the second is as it should be. */
static bool run_with_fault(const char *function, int nth, const float *want, int *met)
{
    static float found[ROOM_VALUES];
    struct streamed s = open_streamed();
    cuda.standin_fail(function, nth, CUDA_ERROR_OUT_OF_MEMORY);
    const bool good = model_try_run(s.b, found, sizeof(found));
    assert_true(good || tern_error_status(s.ctx) == TERN_E_NO_MEMORY || tern_error_status(s.ctx) == TERN_E_DEVICE);
    if (good)
        assert_memory_equal(found, want, sizeof(found));
    else
        tern_error_clear(s.ctx);
    if (!cuda.standin_pending()) {
        model_run(s.b, found, sizeof(found));
        assert_memory_equal(found, want, sizeof(found));
        ++*met;
    }
    close_streamed(&s);
    return good;
}

/* Calls of the driver fail while weights travel: the same bits or a status, and the device goes on. */
static void travelling_fails(void **state)
{
    static const char *const functions[] = {"cuStreamWaitEvent", "cuEventRecord", "cuEventCreate", "cuMemcpyHtoDAsync_v2",
                                            "cuMemHostAlloc"};
    static float want[ROOM_VALUES];
    char text[400];
    int failed = 0, met = 0;
    if (!room_is("cuda")) {
        print_message("calls of this driver cannot be made to fail one by one\n");
        skip();
    }
    struct streamed s = open_streamed();
    model_run(s.b, want, sizeof(want));
    close_streamed(&s);
    for (int f = 0; f < 5; f++)
        for (int nth = 1; nth < 400; nth += nth < 4 ? 1 : 97) {
            failed += !run_with_fault(functions[f], nth, want, &met);
            if (cuda.standin_misuses(text, sizeof(text)) || cuda.standin_leaks(text, sizeof(text)))
                fail_msg("%s, call %d: %s", functions[f], nth, text);
            cuda_setup(NULL);
        }
    print_message("%d runs met a fault, %d of them failed\n", met, failed);
    assert_true(failed > 20);
}

/* Of the second run, which reads what it has made, one reading fails: a status, and all is as it was. */
static void reading_back_fails(void **state)
{
    static const int calls[] = {1, 2, 60, 140};
    static float want[ROOM_VALUES], found[ROOM_VALUES];
    int failed = 0;
    if (!room_is("cuda")) {
        print_message("calls of this driver cannot be made to fail one by one\n");
        skip();
    }
    struct streamed s = load_streamed(room_open(0, NULL), "*:w4");
    model_run(s.b, want, sizeof(want));
    for (int i = 0; i < 4; i++) {
        tern_binding_set_streaming(s.b, TERN_STREAMING_SPILL);
        model_run(s.b, found, sizeof(found));
        cuda.standin_fail("cuMemcpyDtoHAsync_v2", calls[i], CUDA_ERROR_OUT_OF_MEMORY);
        failed += !model_try_run(s.b, found, sizeof(found));
        tern_error_clear(s.ctx);
        for (int k = 0; k < 3; k++) {
            model_run(s.b, found, sizeof(found));
            assert_memory_equal(found, want, sizeof(found));
        }
    }
    print_message("%d of 4 second runs failed\n", failed);
    assert_int_equal(failed, 4);
    close_streamed(&s);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {ROOM_CASE(weights_travel_beside), ROOM_CASE(few_bits_travel), ROOM_CASE(travelling_fails),
                                       ROOM_CASE(reading_back_fails)};
    room_device = argc > 1 ? argv[1] : "cuda";
    return cmocka_run_group_tests(tests, room_group_setup, room_group_teardown);
}
