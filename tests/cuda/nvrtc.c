/* A stand-in for NVRTC: CUDA C++ is compiled by the host's C++ compiler, and the "cubin" is the shared object that comes of it. What was
 * compiled before is found in the folder TERN_STANDIN_CACHE. */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/cuda/standin.h"

#define DECLARE(name, arguments) STANDIN_API nvrtcResult name arguments;
NVRTC_FUNCTIONS(DECLARE)
#undef DECLARE

struct _nvrtcProgram {
    char *source, *image, *log;
    size_t size; /* of the image */
    int arch;
    bool binary;
};

static int version = 12090, next_error, compilations;
static int archs[64] = {50, 52, 53, 60, 61, 70, 72, 75, 80, 86, 87, 89, 90};
extern char **environ;

void standin_nvrtc_set(int number, const int *known)
{
    int n = 0;
    version = number;
    for (; n < 63 && known[n]; n++)
        archs[n] = known[n];
    archs[n] = 0;
}

void standin_nvrtc_fail(nvrtcResult error) { next_error = error; }
int standin_nvrtc_compilations(void) { return compilations; }

nvrtcResult nvrtcVersion(int *major, int *minor)
{
    *major = version / 1000;
    *minor = version / 10 % 100;
    return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetNumSupportedArchs(int *count)
{
    for (*count = 0; archs[*count];)
        ++*count;
    return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetSupportedArchs(int *known)
{
    for (int i = 0; archs[i]; i++)
        known[i] = archs[i];
    return NVRTC_SUCCESS;
}

nvrtcResult nvrtcCreateProgram(nvrtcProgram *program, const char *source, const char *name, int n_headers, const char *const *headers,
                               const char *const *names)
{
    nvrtcProgram p = calloc(1, sizeof(*p));
    if (!p || !source || n_headers)
        return NVRTC_ERROR_INVALID_INPUT;
    p->source = strdup(source);
    p->log = calloc(1, 1);
    *program = p;
    return NVRTC_SUCCESS;
}

nvrtcResult nvrtcDestroyProgram(nvrtcProgram *program)
{
    if (!*program)
        return NVRTC_ERROR_INVALID_PROGRAM;
    free((*program)->source);
    free((*program)->image);
    free((*program)->log);
    free(*program);
    *program = NULL;
    return NVRTC_SUCCESS;
}

/* asm("cvt.f32.f16 %0, %1;" : "=f"(v) : "h"(x)); becomes v = ptx_cvt_f32_f16(x); an instruction that prelude.h lacks is an error of the
 * compiler, which names it. */
static void write_translated(FILE *f, const char *s)
{
    for (const char *found; (found = strstr(s, "asm(\""));) {
        char op[64], target[64], operand[128];
        int used = 0;
        fwrite(s, 1, (size_t)(found - s), f);
        if (sscanf(found, "asm(\"%63[^ ] %%0, %%1;\" : \"=%*c\"(%63[^)]) : \"%*c\"(%127[^:;];%n", op, target, operand, &used) < 3 ||
            !used) {
            fputs("asm_that_is_not_understood(\"", f);
            s = found + 5;
            continue;
        }
        for (char *c = op; *c; c++)
            *c = *c == '.' ? '_' : *c;
        operand[strlen(operand) - 2] = 0; /* the parentheses of the operand and of asm */
        fprintf(f, "%s = ptx_%s(%s);", target, op, operand);
        s = found + used;
    }
    fputs(s, f);
}

static char *read_all(const char *path, size_t *size)
{
    FILE *f = fopen(path, "rb");
    struct stat st;
    char *data = f && !fstat(fileno(f), &st) ? malloc((size_t)st.st_size + 1) : NULL;
    *size = data ? fread(data, 1, (size_t)st.st_size, f) : 0;
    if (data)
        data[*size] = 0;
    if (f)
        fclose(f);
    return data;
}

static uint64_t hash(uint64_t h, const char *s)
{
    for (; s && *s; s++)
        h = (h ^ (unsigned char)*s) * 0x100000001b3u;
    return h;
}

/* Where the compiled source is, or comes: by source, architecture, and the files that are put around it. */
static void place(const struct _nvrtcProgram *p, char *path, size_t size)
{
    static uint64_t around;
    const char *folder = getenv("TERN_STANDIN_CACHE");
    if (!around) {
        static const char *const files[] = {"half.h", "kernel.h", "prelude.h", "epilogue.h"};
        around = 0xcbf29ce484222325u;
        for (int i = 0; i < 4; i++) {
            char name[512];
            size_t n;
            snprintf(name, sizeof(name), "%s/%s", TERN_STANDIN_SOURCE, files[i]);
            char *text = read_all(name, &n);
            around = hash(around, text);
            free(text);
        }
    }
    if (!folder)
        folder = "/tmp/tern-standin-cache";
    mkdir(folder, 0755);
    snprintf(path, size, "%s/%016llx%016llx-%d.so", folder, (unsigned long long)hash(around, p->source),
             (unsigned long long)hash(~around, p->source), p->arch);
}

static bool run(char *command)
{
    char *const arguments[] = {(char[]){"sh"}, (char[]){"-c"}, command, NULL};
    pid_t pid;
    int status;
    return !posix_spawn(&pid, "/bin/sh", NULL, NULL, arguments, environ) && waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
           !WEXITSTATUS(status);
}

/* Flags that the processor has and that make fmaf an instruction. */
static const char *flags(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("fma"))
        return "-mfma -mavx2";
#endif
    return "";
}

static bool compile(struct _nvrtcProgram *p, const char *path)
{
    char source[600], object[600], log[600], command[4096];
    snprintf(source, sizeof(source), "%s.%d.cpp", path, (int)getpid());
    snprintf(object, sizeof(object), "%s.%d.so", path, (int)getpid());
    snprintf(log, sizeof(log), "%s.%d.log", path, (int)getpid());
    FILE *f = fopen(source, "w");
    if (!f)
        return false;
    fprintf(f,
            "#define STANDIN_ARCH %d\n#define STANDIN_MATRIX %d\n#define STANDIN_BF16 %d\n#define STANDIN_I8 %d\n#include "
            "\"prelude.h\"\n#line 1 \"text.cu\"\n",
            p->arch, strstr(p->source, "#define MATRIX 1\n") != NULL, strstr(p->source, "#define MATRIX_BF16 1\n") != NULL,
            strstr(p->source, "#define MATRIX_I8 1\n") != NULL);
    write_translated(f, p->source);
    fputs("\n#include \"epilogue.h\"\n", f);
    fclose(f);
    snprintf(command, sizeof(command),
             TERN_STANDIN_CXX " -std=c++14 -O2 %s -w -ffp-contract=off -fno-math-errno -fno-exceptions -fno-rtti -fvisibility=hidden -fPIC "
                              "-shared -s -I%s -o %s %s -lm >%s 2>&1",
             flags(), TERN_STANDIN_SOURCE, object, source, log);
    bool good = run(command) && !rename(object, path);
    if (!good) {
        size_t size;
        free(p->log);
        p->log = read_all(log, &size);
    }
    unlink(source);
    unlink(object);
    unlink(log);
    return good;
}

static void say(struct _nvrtcProgram *p, const char *text)
{
    free(p->log);
    p->log = strdup(text);
}

static bool take_option(struct _nvrtcProgram *p, const char *option)
{
    const char *arch = strstr(option, "--gpu-architecture=") == option ? option + 19 : NULL;
    if (!arch)
        return !strcmp(option, "--std=c++14");
    p->binary = !strncmp(arch, "sm_", 3);
    if (!p->binary && strncmp(arch, "compute_", 8))
        return false;
    p->arch = atoi(strchr(arch, '_') + 1);
    for (int i = 0; archs[i]; i++)
        if (archs[i] == p->arch)
            return true;
    return false;
}

nvrtcResult nvrtcCompileProgram(nvrtcProgram p, int n_options, const char *const *options)
{
    char path[512];
    nvrtcResult error = next_error;
    next_error = NVRTC_SUCCESS;
    compilations++;
    for (int i = 0; i < n_options && !error; i++)
        if (!take_option(p, options[i])) {
            say(p, options[i]);
            return NVRTC_ERROR_INVALID_OPTION;
        }
    if (error) {
        say(p, "text.cu(1): error: made to fail");
        return error;
    }
    if (!p->arch)
        return NVRTC_ERROR_INVALID_OPTION;
    place(p, path, sizeof(path));
    p->image = read_all(path, &p->size);
    if (!p->image && compile(p, path))
        p->image = read_all(path, &p->size);
    return p->image ? NVRTC_SUCCESS : NVRTC_ERROR_COMPILATION;
}

nvrtcResult nvrtcGetCUBINSize(nvrtcProgram p, size_t *size)
{
    *size = p->image && p->binary ? p->size : 0;
    return p->image ? NVRTC_SUCCESS : NVRTC_ERROR_INVALID_PROGRAM;
}

nvrtcResult nvrtcGetCUBIN(nvrtcProgram p, char *image)
{
    if (!p->image || !p->binary)
        return NVRTC_ERROR_INVALID_PROGRAM;
    memcpy(image, p->image, p->size);
    return NVRTC_SUCCESS;
}

/* "PTX": a head as real PTX has it, and the shared object in hexadecimal. */
static int write_ptx(const struct _nvrtcProgram *p, char *text)
{
    int n = sprintf(text, ".version %d.%d\n.target sm_%d\n", version / 1000, version / 10 % 100, p->arch);
    for (size_t i = 0; i < p->size; i++)
        n += sprintf(text + n, "%02x", (unsigned char)p->image[i]);
    return n + 1;
}

nvrtcResult nvrtcGetPTXSize(nvrtcProgram p, size_t *size)
{
    *size = 2 * p->size + 64;
    return p->image ? NVRTC_SUCCESS : NVRTC_ERROR_INVALID_PROGRAM;
}

nvrtcResult nvrtcGetPTX(nvrtcProgram p, char *text)
{
    if (!p->image)
        return NVRTC_ERROR_INVALID_PROGRAM;
    memset(text, 0, 2 * p->size + 64);
    write_ptx(p, text);
    return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram p, size_t *size)
{
    *size = strlen(p->log) + 1;
    return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetProgramLog(nvrtcProgram p, char *text)
{
    strcpy(text, p->log);
    return NVRTC_SUCCESS;
}
