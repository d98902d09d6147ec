/* Names of output files, and whether they can be written: asked before a long job, not after it. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "command.h"

int output_check(const char *path)
{
    static const char trial[] = ".tern-XXXXXX";
    struct stat st;
    if (!*path)
        return usage("the name of the output file is empty");
    if (!stat(path, &st) && S_ISDIR(st.st_mode))
        return failed("%s: cannot be written: it is a folder", path);
    const char *slash = strrchr(path, '/');
    size_t folder = slash ? (size_t)(slash - path) + 1 : 0;
    if (slash && !slash[1])
        return failed("%s: cannot be written: the name of a file is missing", path);
    if (strlen(path) - folder > 240)
        return failed("%s: cannot be written: %s", path, strerror(ENAMETOOLONG));
    char *temporary = malloc(folder + sizeof(trial));
    if (!temporary)
        return failed("out of memory");
    memcpy(temporary, path, folder);
    memcpy(temporary + folder, trial, sizeof(trial));
    int fd = mkstemp(temporary); /* made with O_EXCL */
    int reason = errno;
    if (fd >= 0) {
        close(fd);
        unlink(temporary);
    }
    free(temporary);
    return fd < 0 ? failed("%s: cannot be written: %s", path, strerror(reason)) : GO_ON;
}

static const char *ending_of(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path, *dot = strrchr(name, '.');
    return dot && dot != name ? dot : path + strlen(path); /* ".png" is a name without ending */
}

int output_check_ending(const struct opt *opt, const char *path)
{
    static const char *const endings[] = {".png", ".jpg", ".jpeg", ".webp"};
    for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++)
        if (!strcasecmp(ending_of(path), endings[i]))
            return GO_ON;
    return usage("option --%s: expected a name that ends in .png, .jpg, .jpeg or .webp, found \"%s\"", opt->name, path);
}

char *output_name(const char *path, int i, int n)
{
    size_t size = strlen(path) + 16;
    char *name = malloc(size);
    if (!name)
        return NULL;
    const char *ending = ending_of(path);
    if (n == 1)
        snprintf(name, size, "%s", path);
    else
        snprintf(name, size, "%.*s-%d%s", (int)(ending - path), path, i + 1, ending);
    return name;
}

/* The name that a file has while it is written; free it. */
static char *unfinished_name(const char *path)
{
    size_t size = strlen(path) + 32;
    char *name = malloc(size);
    if (name)
        snprintf(name, size, "%s.%ld", path, (long)getpid());
    return name;
}

int output_write(const char *path, void (*fill)(FILE *file, const void *user), const void *user)
{
    char *name = unfinished_name(path);
    if (!name)
        return failed("out of memory");
    interrupt_hold(true);
    int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    bool bad = !file;
    if (file) {
        fill(file, user);
        bad = ferror(file) || fflush(file);
    }
    int reason = errno;
    if (file ? fclose(file) && !bad : fd >= 0 && close(fd)) {
        bad = true;
        reason = errno;
    }
    if (!bad && rename(name, path)) {
        bad = true;
        reason = errno;
    }
    if (bad && fd >= 0)
        unlink(name);
    interrupt_hold(false);
    free(name);
    return bad ? failed("%s: could not be written: %s", path, strerror(reason)) : GO_ON;
}
