/* GLSL to SPIR-V by the command glslc, where the library of shaderc is not there or does not load (Debian 12's lacks symbols). */
#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backends/vulkan/vulkan.h"
#include "core/context.h"

#define MOST ((size_t)64 << 20)

extern char **environ;

enum { IN, OUT, LOG, FILES };

/* Starts it on three files without names and waits for its end: 0, or an error number; what it said is in the files. */
static int run(FILE *const files[FILES], int *status)
{
    static const char *const arguments[] = {"glslc", "-fshader-stage=compute", "--target-env=vulkan1.2", "-o", "-", "-", NULL};
    posix_spawn_file_actions_t actions;
    pid_t child;
    int error = posix_spawn_file_actions_init(&actions);
    if (error)
        return error;
    for (int i = 0; i < FILES && !error; i++)
        error = posix_spawn_file_actions_adddup2(&actions, fileno(files[i]), i);
    if (!error)
        error = posix_spawnp(&child, arguments[0], &actions, NULL, (char *const *)arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error)
        return error;
    while (waitpid(child, status, 0) < 0) {
        if (errno == ECHILD) /* the program has its children reaped elsewhere; what is written tells */
            *status = 0;
        if (errno != EINTR)
            return errno == ECHILD ? 0 : errno;
    }
    return 0;
}

/* The whole module, with room for VULKAN_SPIRV_MORE words. */
static uint32_t *read_words(struct tern_context *ctx, FILE *f, size_t *size)
{
    struct stat facts;
    if (fstat(fileno(f), &facts) || facts.st_size < 20 || (size_t)facts.st_size > MOST || facts.st_size % 4 ||
        lseek(fileno(f), 0, SEEK_SET))
        return NULL;
    *size = (size_t)facts.st_size;
    uint32_t *words = tern_alloc(ctx, *size + VULKAN_SPIRV_MORE * sizeof(*words));
    if (!words || fread(words, 1, *size, f) == *size)
        return words;
    tern_free(ctx, words);
    return NULL;
}

static uint32_t *compile(struct tern_context *ctx, FILE *const files[FILES], const char *source, const char *name, size_t *size)
{
    char log[600] = "";
    size_t n = strlen(source);
    int status = -1;
    if (fwrite(source, 1, n, files[IN]) != n || fflush(files[IN]) || lseek(fileno(files[IN]), 0, SEEK_SET)) {
        tern_fail(ctx, TERN_E_IO, "vulkan: kernel text %s: no room for temporary files: %s", name, strerror(errno));
        return NULL;
    }
    int error = run(files, &status);
    if (error == ENOENT) {
        tern_fail(
            ctx, TERN_E_NOT_FOUND,
            "vulkan: kernels are compiled by shaderc, and neither its library (libshaderc.so.1) nor its command (glslc) works here; the "
            "Vulkan SDK has both, the Debian package glslc the command");
        return NULL;
    }
    uint32_t *words = !error && status == 0 ? read_words(ctx, files[OUT], size) : NULL;
    if (words || tern_failed(ctx))
        return words;
    if (!lseek(fileno(files[LOG]), 0, SEEK_SET))
        log[fread(log, 1, sizeof(log) - 1, files[LOG])] = 0;
    tern_fail(ctx, TERN_E_DEVICE, "vulkan: kernel text %s: glslc says: %s", name, error ? strerror(error) : log);
    return NULL;
}

uint32_t *tern_vulkan_glslc(struct tern_context *ctx, const char *source, const char *name, size_t *size)
{
    FILE *files[FILES];
    uint32_t *words = NULL;
    int n = 0;
    while (n < FILES && (files[n] = tmpfile()))
        n++;
    if (n < FILES)
        tern_fail(ctx, TERN_E_IO, "vulkan: kernel text %s: no temporary file can be made: %s", name, strerror(errno));
    else
        words = compile(ctx, files, source, name, size);
    while (n > 0)
        fclose(files[--n]);
    return words;
}
