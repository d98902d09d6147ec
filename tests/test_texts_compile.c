/* Kernel texts through the compilers of the GPU languages: GLSL to SPIR-V for Vulkan 1.2, with every capability and without,
 * and CUDA C++ by NVRTC for each generation. Nothing runs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/text_run.h"

static void nothing(void *kernel) {}

/* ---- GLSL: all sources into a folder, then one call of the compiler ---- */

struct folder {
    char path[64];
    int n;
    struct text_cache cache;
};

static bool write_source(void *user, const char *source, const struct tern_launch *l, const struct text_buffer *buffers, char *message,
                         size_t size)
{
    struct folder *f = user;
    char path[128];
    if (text_cache_find(&f->cache, source))
        return true;
    snprintf(path, sizeof(path), "%s/%d.comp", f->path, f->n++);
    FILE *file = fopen(path, "w");
    bool good = file && fputs(source, file) >= 0;
    if (file && fclose(file))
        good = false;
    return good && text_cache_add(&f->cache, source, f);
}

static bool found(const char *program)
{
    char command[128];
    snprintf(command, sizeof(command), "command -v %s >/dev/null 2>&1", program);
    return system(command) == 0;
}

static void run_glsl(const char *name, struct tern_launch_limits limits, int one_in)
{
    struct folder f = {.path = "/tmp/tern-glsl-XXXXXX"};
    struct text_executor e = {.name = name,
                              .language = TERN_TEXT_GLSL,
                              .limits = limits,
                              .run = write_source,
                              .user = &f,
                              .one_in = one_in,
                              .only_compiles = true};
    char command[1024];
    if (!found("glslc") || !found("spirv-val")) {
        print_message("no glslc or no spirv-val: packages glslc and spirv-tools have them\n");
        skip();
    }
    assert_non_null(mkdtemp(f.path));
    struct text_counts table = text_run_table(&e), more = text_run_more(&e);
    print_message("%s: %d sources\n", name, f.n);
    snprintf(command, sizeof(command),
             "cd %s && glslc --target-env=vulkan1.2 -Werror -c *.comp && for f in *.spv; do spirv-val --target-env vulkan1.2 $f || { echo "
             "$f; exit 1; }; done",
             f.path);
    int status = f.n ? system(command) : 1;
    if (!status) {
        snprintf(command, sizeof(command), "rm -r %s", f.path);
        assert_int_equal(system(command), 0);
    }
    text_cache_clear(&f.cache, nothing);
    assert_int_equal(status, 0);
    assert_int_equal(table.failed + more.failed, 0);
}

static void test_glsl(void **state) { run_glsl("GLSL", text_limits_subgroups(32), 0); }
static void test_glsl_least(void **state) { run_glsl("GLSL, least device", text_limits_least(), 4); }

/* ---- CUDA C++ ---- */

typedef struct nvrtc_program *nvrtc;
struct compiler {
    void *library;
    int (*create)(nvrtc *, const char *source, const char *name, int n, const char *const *headers, const char *const *names);
    int (*compile)(nvrtc, int n, const char *const *options);
    int (*destroy)(nvrtc *);
    int (*log_size)(nvrtc, size_t *);
    int (*log)(nvrtc, char *);
    int (*cubin_size)(nvrtc, size_t *);
    int n, compiled;
    bool has_fast; /* 12.9 has it */
    struct text_cache sources, texts;
};

/* Volta, Turing, A100, RTX 30, RTX 40, Hopper. */
static const int generations[] = {70, 75, 80, 86, 89, 90};

static bool compile_for(struct compiler *c, const char *source, int generation, bool fast, char *message, size_t size)
{
    char architecture[32];
    const char *const options[] = {architecture, "--std=c++14", "--Ofast-compile=max"};
    size_t n = 0;
    nvrtc program;
    snprintf(architecture, sizeof(architecture), "--gpu-architecture=sm_%d", generation);
    if (c->create(&program, source, "text.cu", 0, NULL, NULL))
        return false;
    bool good = !c->compile(program, fast ? 3 : 2, options) && !c->cubin_size(program, &n) && n > 0;
    if (!good && !c->log_size(program, &n) && n < size)
        c->log(program, message);
    c->destroy(&program);
    return good;
}

static bool open_compiler(struct compiler *c)
{
    const char *path = getenv("TERN_NVRTC");
    *c = (struct compiler){.library = dlopen(path ? path : "libnvrtc.so.12", RTLD_NOW)};
    if (!c->library)
        return false;
    *(void **)&c->create = dlsym(c->library, "nvrtcCreateProgram");
    *(void **)&c->compile = dlsym(c->library, "nvrtcCompileProgram");
    *(void **)&c->destroy = dlsym(c->library, "nvrtcDestroyProgram");
    *(void **)&c->log_size = dlsym(c->library, "nvrtcGetProgramLogSize");
    *(void **)&c->log = dlsym(c->library, "nvrtcGetProgramLog");
    *(void **)&c->cubin_size = dlsym(c->library, "nvrtcGetCUBINSize");
    if (!c->create || !c->compile || !c->destroy || !c->log_size || !c->log || !c->cubin_size)
        return false;
    c->has_fast = compile_for(c, "__global__ void nothing() {}", 80, true, NULL, 0);
    return true;
}

/* Matrix units are there for f16 from Volta on, for int8 from Turing on, for bf16 from the A100 on. */
static bool compiles_for(const char *source, int generation)
{
    return generation >= 80 ||
           (!strstr(source, "#define MATRIX_BF16 1\n") && (generation >= 75 || !strstr(source, "#define MATRIX_I8 1\n")));
}

/* The first variant of a text for every generation, as the backend compiles it; the others for one of them, in turn, and hardly optimised:
 * all of it then takes two thirds of the time. */
static bool compile(void *user, const char *source, const struct tern_launch *l, const struct text_buffer *buffers, char *message,
                    size_t size)
{
    struct compiler *c = user;
    bool first = !text_cache_find(&c->texts, l->text), good = true;
    const int n = sizeof(generations) / sizeof(*generations);
    message[0] = 0;
    if (text_cache_find(&c->sources, source))
        return true;
    for (int i = first ? 0 : c->n % n; i < (first ? n : c->n % n + 1) && good; i++) {
        if (!compiles_for(source, generations[i]))
            continue;
        good = compile_for(c, source, generations[i], !first && c->has_fast, message, size);
        c->compiled++;
    }
    c->n++;
    if (first && !text_cache_add(&c->texts, l->text, c))
        return false;
    return good && text_cache_add(&c->sources, source, c);
}

static void test_cuda(void **state)
{
    struct compiler c;
    if (!open_compiler(&c)) {
        print_message("no NVRTC: the wheel nvidia-cuda-nvrtc-cu12 has libnvrtc.so.12; its path goes into TERN_NVRTC\n");
        skip();
    }
    struct text_executor e = {.name = "CUDA",
                              .language = TERN_TEXT_CUDA,
                              .limits = text_limits_subgroups(32),
                              .run = compile,
                              .user = &c,
                              .one_in = 4,
                              .only_compiles = true};
    struct text_counts table = text_run_table(&e), more = text_run_more(&e);
    assert_int_equal(table.failed + more.failed, 0);
    e.name = "CUDA, tensor cores";
    e.limits = text_limits_matrix();
    table = text_run_table(&e);
    more = text_run_more(&e);
    print_message("CUDA: %d sources, compiled %d times\n", c.n, c.compiled);
    text_cache_clear(&c.sources, nothing);
    text_cache_clear(&c.texts, nothing);
    assert_int_equal(table.failed + more.failed, 0);
    assert_true(c.compiled > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_glsl), cmocka_unit_test(test_glsl_least), cmocka_unit_test(test_cuda)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
