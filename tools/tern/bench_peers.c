/* tern bench peers: hands over to the script bench/peers/run of a source tree, which sets up and runs what it needs. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"

#define SCRIPT "bench/peers/run"
#define PATH 4096

/* Cuts the last part of a path off. False: there is none left. */
static bool up(char *path)
{
    char *slash = strrchr(path, '/');
    if (slash)
        *slash = 0;
    return slash && *path;
}

/* The script in `path` or a folder above it, which path becomes. */
static bool find_above(char *path)
{
    char script[PATH + sizeof(SCRIPT) + 2];
    do {
        snprintf(script, sizeof(script), "%s/" SCRIPT, path);
        if (!access(script, X_OK))
            return true;
    } while (up(path));
    return false;
}

/* The build folder that this program is in, or "". */
static void find_build(const char *program, char out[PATH])
{
    char file[PATH + 16];
    snprintf(out, PATH, "%s", program);
    for (int i = 0; i < 3; i++) /* BUILD/tools/tern/tern */
        if (!up(out))
            *out = 0;
    snprintf(file, sizeof(file), "%s/build.ninja", out);
    if (access(file, R_OK))
        *out = 0;
}

int bench_peers(int argc, char **argv)
{
    char program[PATH] = "", root[PATH], build[PATH], script[PATH + sizeof(SCRIPT) + 2];
    ssize_t n = readlink("/proc/self/exe", program, sizeof(program) - 1);
    program[n > 0 ? n : 0] = 0;
    find_build(program, build);
    bool found = getcwd(root, sizeof(root)) && find_above(root);
    if (!found) {
        snprintf(root, sizeof(root), "%s", program);
        found = find_above(root);
    }
    if (!found)
        return failed("bench peers: needs the source tree of tern, with " SCRIPT
                      ", and Python 3 with venv: PyTorch and OpenVINO are installed in "
                      "virtual environments (8 GB) and run beside tern. Call it from inside a source tree; none was found at or above the "
                      "working folder, nor above this program");
    if (*build && setenv("TERN_BUILD", build, 0))
        return failed("out of memory");
    char **args = calloc((size_t)argc + 2, sizeof(*args));
    if (!args)
        return failed("out of memory");
    snprintf(script, sizeof(script), "%s/" SCRIPT, root);
    args[0] = script;
    memcpy(args + 1, argv, (size_t)argc * sizeof(*args));
    execv(script, args);
    free(args);
    return failed("%s: could not be started: %s", script, strerror(errno));
}
