/* Captures of the CUDA backend on the stand-in driver: launches that are kept and replayed, and what goes on beside them. */
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/context.h"
#include "core/tensor.h"
#include "cuda_help.h"
#include "ops/kernel.h"
#include "support.h"

enum { N = 1000 };

/* y = x + x by the device's kernel, into memory that is there. */
static enum tern_status twice(struct tern_context *ctx, tern_tensor *x, tern_tensor *y)
{
    const struct tern_kernel *kernel = NULL;
    struct tern_op_desc d = {.op = TERN_OP_add, .n_in = 2};
    d.in[0] = d.in[1] = x->meta;
    d.present[0] = d.present[1] = true;
    d.out = y->meta;
    for (int i = 0; ctx->device->kernels[i]; i++)
        kernel = ctx->device->kernels[i]->op == TERN_OP_add ? ctx->device->kernels[i] : kernel;
    struct tern_kernel_args a = {.desc = &d, .ctx = ctx};
    a.in[0] = a.in[1] = (struct tern_arg){x->buffer, x->offset};
    a.out = (struct tern_arg){y->buffer, y->offset};
    return ctx->device->queue->fns->launch(ctx->device->queue, kernel, &a);
}

static tern_tensor *vector(struct tern_context *ctx, float value)
{
    float values[N];
    for (int i = 0; i < N; i++)
        values[i] = value;
    tern_tensor *t = tern_tensor_create(ctx, TERN_F32, 1, (const int64_t[]){N}, values);
    assert_non_null(t);
    return t;
}

static void assert_all(tern_tensor *t, float value)
{
    float values[N];
    assert_int_equal(tern_tensor_read(t, TERN_F32, values, sizeof(values)), TERN_OK);
    for (int i = 0; i < N; i++)
        if (values[i] != value)
            fail_msg("value %d is %g, expected %g", i, (double)values[i], (double)value);
}

static enum tern_status set(tern_tensor *t, float value)
{
    float values[N];
    for (int i = 0; i < N; i++)
        values[i] = value;
    return tern_buffer_write(t->buffer, t->offset, values, sizeof(values));
}

/* x -> y -> z, three times with other values. */
static void test_replays(void **state)
{
    struct tern_context *ctx = cuda_open();
    struct tern_queue *q = ctx->device->queue;
    tern_tensor *x = vector(ctx, 1), *y = vector(ctx, 0), *z = vector(ctx, 0);
    assert_int_equal(q->fns->capture_begin(q), TERN_OK);
    assert_int_equal(twice(ctx, x, y), TERN_OK);
    assert_int_equal(twice(ctx, y, z), TERN_OK);
    struct tern_capture *c = q->fns->capture_end(q);
    assert_non_null(c);
    assert_int_equal(c->launches, 2);
    assert_int_equal(cuda_counts().launches, 0);
    assert_all(z, 0); /* kept, not run */
    for (int i = 1; i <= 3; i++) {
        assert_int_equal(set(x, (float)i), TERN_OK);
        struct standin_counts from = cuda_counts();
        assert_int_equal(q->fns->replay(q, c), TERN_OK);
        struct standin_counts to = cuda_counts();
        assert_int_equal(to.graph_launches - from.graph_launches, 1);
        assert_int_equal(to.graph_kernels - from.graph_kernels, 2);
        assert_int_equal(to.launches + to.synchronisations, from.launches + from.synchronisations);
        assert_all(z, 4 * (float)i);
    }
    assert_int_equal(set(x, 8), TERN_OK);
    assert_int_equal(q->fns->replay(q, c), TERN_OK);
    c->fns->destroy(c); /* waits for it */
    assert_all(z, 32);
    tern_tensor_unref(&x);
    tern_tensor_unref(&y);
    tern_tensor_unref(&z);
    tern_context_destroy(&ctx);
}

/* Between begin and end this thread may compile, allocate, write, read and free, and all of that happens at once. */
static void test_beside(void **state)
{
    struct tern_context *ctx = cuda_open();
    struct tern_queue *q = ctx->device->queue;
    tern_tensor *x = vector(ctx, 1), *y = vector(ctx, 0);
    assert_int_equal(twice(ctx, x, y), TERN_OK); /* is behind what is captured, and before what goes on beside it */
    assert_int_equal(q->fns->capture_begin(q), TERN_OK);
    assert_int_equal(twice(ctx, y, x), TERN_OK);
    tern_tensor *more = vector(ctx, 7);
    assert_all(more, 7);
    assert_all(y, 2);
    tern_tensor_unref(&more);
    assert_int_equal(set(y, 10), TERN_OK);
    assert_int_equal(q->fns->finish(q), TERN_OK);
    assert_int_not_equal(q->fns->capture_begin(q), TERN_OK);
    support_error(ctx, TERN_E_INTERNAL, "inside another one");
    struct tern_capture *c = q->fns->capture_end(q);
    assert_non_null(c);
    assert_all(x, 1);
    assert_int_equal(q->fns->replay(q, c), TERN_OK);
    assert_all(x, 20);
    c->fns->destroy(c);
    tern_tensor_unref(&x);
    tern_tensor_unref(&y);
    tern_context_destroy(&ctx);
}

struct other {
    struct tern_context *ctx;
    tern_tensor *x, *y;
    int done; /* atomic */
};

static void *other_thread(void *user)
{
    struct other *o = user;
    assert_int_equal(twice(o->ctx, o->x, o->y), TERN_OK);
    __atomic_store_n(&o->done, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

/* What another thread launches meanwhile waits, and is not part of the capture. */
static void test_other_threads_wait(void **state)
{
    struct tern_context *ctx = cuda_open();
    struct tern_queue *q = ctx->device->queue;
    struct other o = {.ctx = ctx, .x = vector(ctx, 3), .y = vector(ctx, 0)};
    tern_tensor *x = vector(ctx, 1), *y = vector(ctx, 0);
    pthread_t thread;
    assert_int_equal(q->fns->capture_begin(q), TERN_OK);
    assert_int_equal(pthread_create(&thread, NULL, other_thread, &o), 0);
    assert_int_equal(twice(ctx, x, y), TERN_OK);
    usleep(50000);
    assert_int_equal(__atomic_load_n(&o.done, __ATOMIC_SEQ_CST), 0);
    struct tern_capture *c = q->fns->capture_end(q);
    assert_non_null(c);
    pthread_join(thread, NULL);
    assert_int_equal(c->launches, 1);
    assert_all(o.y, 6);
    assert_all(y, 0);
    c->fns->destroy(c);
    tern_tensor_unref(&x);
    tern_tensor_unref(&y);
    tern_tensor_unref(&o.x);
    tern_tensor_unref(&o.y);
    tern_context_destroy(&ctx);
}

/* An application's own context is current again behind every call. */
static void test_leaves_contexts_alone(void **state)
{
    struct tern_context *ctx = cuda_open();
    struct cuda_api cu;
    CUcontext own = (CUcontext)(uintptr_t)0x1230, popped = NULL;
    *(void **)(void *)&cu.cuCtxPushCurrent_v2 = dlsym(cuda.driver, "cuCtxPushCurrent_v2");
    *(void **)(void *)&cu.cuCtxPopCurrent_v2 = dlsym(cuda.driver, "cuCtxPopCurrent_v2");
    assert_int_equal(cu.cuCtxPushCurrent_v2(own), 0);
    assert_true(cuda_small_job(ctx));
    tern_context_destroy(&ctx);
    assert_int_equal(cu.cuCtxPopCurrent_v2(&popped), 0);
    assert_ptr_equal(popped, own);
}

int main(void)
{
    const struct CMUnitTest tests[] = {CUDA_TEST(test_replays), CUDA_TEST(test_beside), CUDA_TEST(test_other_threads_wait),
                                       CUDA_TEST(test_leaves_contexts_alone)};
    return cmocka_run_group_tests(tests, cuda_group_setup, cuda_group_teardown);
}
