/* Kernel texts for matrix units as GLSL through a glslang that knows GL_KHR_cooperative_matrix, which Debian 12's does not. It is that of
 * the Python wheel slangpy: tools/glslang. Nothing runs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/text_run.h"

typedef void (*receiver)(const void *data, size_t size, void *user);
/* The library's request, of version 1.2. */
struct request {
    size_t size;
    const char *path;
    const void *begin, *end;
    receiver say;
    void *say_user;
    receiver give;
    void *give_user;
    int stage;                            /* 6: compute */
    unsigned action, optimisation, debug; /* 0: GLSL to SPIR-V */
    const char *target;
    int version[3]; /* of SPIR-V */
    const char *entry;
};

struct glslang {
    int (*compile)(struct request *);
    bool (*validate)(const uint32_t *words, int n);
    struct text_cache sources;
    int n; /* sources for matrix units; others are left out */
};

struct received {
    char *data;
    size_t size;
};

static void receive(const void *data, size_t size, void *user)
{
    struct received *r = user;
    char *more = realloc(r->data, r->size + size + 1);
    if (!more)
        return;
    r->data = more;
    memcpy(r->data + r->size, data, size);
    r->size += size;
    r->data[r->size] = 0;
}

static bool compile(void *user, const char *source, const struct tern_launch *l, const struct text_buffer *buffers, char *message,
                    size_t size)
{
    struct glslang *g = user;
    struct received words = {NULL, 0}, said = {NULL, 0};
    struct request r = {.size = sizeof(r),
                        .path = "text.comp",
                        .begin = source,
                        .end = source + strlen(source),
                        .say = receive,
                        .say_user = &said,
                        .give = receive,
                        .give_user = &words,
                        .stage = 6,
                        .version = {1, 5, 0},
                        .entry = "main"};
    if (!l->matrix_subgroup || text_cache_find(&g->sources, source))
        return true;
    bool good = !g->compile(&r) && words.size > 20;
    if (!good)
        snprintf(message, size, "%s", said.data ? said.data : "no module");
    else if (!(good = g->validate((const uint32_t *)(void *)words.data, (int)(words.size / 4))))
        snprintf(message, size, "the module is not valid");
    free(words.data);
    free(said.data);
    g->n++;
    return good && text_cache_add(&g->sources, source, g);
}

static void nothing(void *kernel) {}

static void test_compiles(void **state)
{
    struct glslang g = {NULL};
    struct tern_launch_limits limits = text_limits_matrix();
    const char *path = getenv("TERN_GLSLANG");
    void *library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (library) {
        *(void **)&g.compile = dlsym(library, "glslang_compile_1_2");
        *(void **)&g.validate = dlsym(library, "glslang_validateSPIRV");
    }
    if (!g.compile || !g.validate) {
        print_message("no glslang with cooperative matrices: tools/glslang fetches one; its path goes into TERN_GLSLANG\n");
        skip();
    }
    limits.matrix_bf16 = limits.matrix_i8 = false; /* as the Vulkan backend says it */
    struct text_executor e = {.name = "GLSL, cooperative matrices",
                              .language = TERN_TEXT_GLSL,
                              .limits = limits,
                              .run = compile,
                              .user = &g,
                              .only_compiles = true};
    struct text_counts table = text_run_table(&e), more = text_run_more(&e);
    print_message("%d sources\n", g.n);
    text_cache_clear(&g.sources, nothing);
    assert_int_equal(table.failed + more.failed, 0);
    assert_true(g.n > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_compiles)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
