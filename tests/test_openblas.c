/* Threads of OpenBLAS where they are OpenMP's: a product has those of the context, and the program gets back what it had. */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>
#include <tern/ops.h>
#include <tern/tensor.h>

#include "support.h"

static int (*own)(void), (*openmp)(void), (*ran)(void);
static void (*set_own)(int), (*set_openmp)(int);

static void threads_come_back(void **state)
{
    static const struct {
        int own, openmp, context;
    } rows[] = {{2, 5, 1}, {1, 5, 1}, {5, 1, 1}, {1, 1, 2}, {3, 1, 2}, {2, 2, 2}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = rows[i].context});
        float y = 0;
        set_own(rows[i].own);
        set_openmp(rows[i].openmp);
        tern_scope_begin(ctx);
        tern_tensor *x = tern_full(ctx, TERN_F32, 2, (const int64_t[]){1, 1}, 1);
        assert_int_equal(tern_op_force(ctx, "matmul_f32_openblas"), TERN_OK);
        tern_tensor_read(tern_matmul(x, x), TERN_F32, &y, sizeof(y));
        tern_scope_end(ctx, NULL);
        assert_string_equal(tern_error(ctx), "");
        assert_true(y == 42); /* the stand-in's */
        assert_int_equal(ran(), rows[i].context);
        assert_int_equal(own(), rows[i].own);
        assert_int_equal(openmp(), rows[i].openmp);
        tern_context_destroy(&ctx);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(threads_come_back)};
    void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL; /* under the name by which OpenBLAS is opened */
    if (!library) {
        fprintf(stderr, "expected the path of the stand-in: %s\n", argc > 1 ? dlerror() : "no argument");
        return 1;
    }
    *(void **)&own = dlsym(library, "openblas_get_num_threads");
    *(void **)&set_own = dlsym(library, "openblas_set_num_threads");
    *(void **)&openmp = dlsym(library, "omp_get_max_threads");
    *(void **)&set_openmp = dlsym(library, "omp_set_num_threads");
    *(void **)&ran = dlsym(library, "standin_ran");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
