/* Names of output files, and whether they can be written: asked before a long job, not after it. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "command.h"

#define LINKS 40 /* as many as Linux follows */

/* The name behind symbolic links, of what need not be there; free it. NULL with errno set. The library does the same for what it writes. */
static char *behind_links(const char *path)
{
    char text[PATH_MAX], *at = strdup(path);
    for (int i = 0; at; i++) {
        ssize_t n = readlink(at, text, sizeof(text) - 1);
        if (n < 0)
            return at;
        text[n] = 0;
        const char *slash = *text == '/' ? NULL : strrchr(at, '/');
        size_t folder = slash ? (size_t)(slash - at) + 1 : 0;
        char *next = i < LINKS ? malloc(folder + (size_t)n + 1) : NULL;
        if (next)
            sprintf(next, "%.*s%s", (int)folder, at, text);
        else
            errno = i < LINKS ? ENOMEM : ELOOP;
        free(at);
        at = next;
    }
    return NULL;
}

/* Where an output goes: straight into a pipe or device, else to *target, behind links; free it. GO_ON or FAILED after a message. */
static int find_target(const char *path, bool *straight, char **target)
{
    struct stat st;
    const bool there = !stat(path, &st);
    *straight = there && (S_ISFIFO(st.st_mode) || S_ISCHR(st.st_mode));
    *target = NULL;
    if (there && S_ISDIR(st.st_mode))
        return failed("%s: cannot be written: it is a folder", path);
    if (there && !*straight && !S_ISREG(st.st_mode))
        return failed("%s: cannot be written: it is a socket or a disk", path);
    if (there && access(path, W_OK)) /* not opened: a pipe would wait for its reader */
        return failed("%s: cannot be written: %s", path, strerror(errno));
    *target = behind_links(path);
    return *target ? GO_ON : failed("%s: cannot be written: %s", path, strerror(errno));
}

/* Whether a file can be made beside `target`, which is what `path` leads to. */
static int check_beside(const char *path, const char *target)
{
    static const char trial[] = ".tern-XXXXXX";
    const char *slash = strrchr(target, '/');
    size_t folder = slash ? (size_t)(slash - target) + 1 : 0;
    if (slash && !slash[1])
        return failed("%s: cannot be written: the name of a file is missing", path);
    if (strlen(target) - folder > NAME_MAX)
        return failed("%s: cannot be written: %s", path, strerror(ENAMETOOLONG));
    char *temporary = malloc(folder + sizeof(trial));
    if (!temporary)
        return failed("out of memory");
    memcpy(temporary, target, folder);
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

int output_check(const char *path)
{
    bool straight;
    char *target;
    if (!*path)
        return usage("the name of the output file is empty");
    int code = find_target(path, &straight, &target);
    if (code == GO_ON && !straight)
        code = check_beside(path, target);
    free(target);
    return code;
}

/* The folder that a name lies in. */
static bool stat_folder(const char *name, struct stat *st)
{
    const char *slash = strrchr(name, '/');
    char *folder = slash ? strndup(name, (size_t)(slash - name) + 1) : strdup(".");
    const bool there = folder && !stat(folder, st);
    free(folder);
    return there;
}

static const char *last_of(const char *name)
{
    const char *slash = strrchr(name, '/');
    return slash ? slash + 1 : name;
}

/* The same for files that are not there yet: one name in one folder, behind links. */
static bool is_same_place(const char *a, const char *b)
{
    struct stat x, y;
    char *first = behind_links(a), *second = behind_links(b);
    const bool same = first && second && !strcmp(last_of(first), last_of(second)) && stat_folder(first, &x) && stat_folder(second, &y) &&
                      x.st_dev == y.st_dev && x.st_ino == y.st_ino;
    free(first);
    free(second);
    return same;
}

static bool is_same(const char *a, const char *b)
{
    struct stat x, y;
    const bool there = !stat(a, &x), other = !stat(b, &y);
    if (there && other)
        return x.st_dev == y.st_dev && x.st_ino == y.st_ino && !S_ISFIFO(x.st_mode) && !S_ISCHR(x.st_mode);
    return !there && !other && is_same_place(a, b);
}

int output_check_all(const char *const *paths, int n)
{
    for (int i = 0; i < n; i++) {
        const int code = paths[i] ? output_check(paths[i]) : GO_ON;
        if (code != GO_ON)
            return code;
        for (int k = 0; k < i; k++)
            if (paths[i] && paths[k] && is_same(paths[k], paths[i]))
                return usage("two outputs cannot have one name, %s", paths[i]);
    }
    return GO_ON;
}

int output_check_other(const char *output, const char *input)
{
    return is_same(output, input) ? usage("%s: expected another name for the output than for the input", output) : GO_ON;
}

static const char *ending_of(const char *path)
{
    const char *name = last_of(path), *dot = strrchr(name, '.');
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

/* The name of that number that a file may have while it is written; free it. Where it would be longer than names may be the file's is cut
 * off. */
static char *unfinished_name(const char *path, int number)
{
    const char *base = last_of(path);
    char end[32], *name = malloc(strlen(path) + sizeof(end));
    snprintf(end, sizeof(end), ".%ld-%d", (long)getpid(), number);
    size_t n = strlen(base), most = NAME_MAX - strlen(end);
    if (n > most && n <= NAME_MAX)
        for (n = most; n && (base[n] & 0xc0) == 0x80; n--)
            ; /* to the end of a character */
    if (name)
        sprintf(name, "%.*s%s", (int)((size_t)(base - path) + n), path, end);
    return name;
}

/* Opens `name`: a new file, of the mode of the target where that is there, or, target NULL, what is there. 0 or errno. */
static int write_to(const char *name, const char *target, void (*fill)(FILE *file, const void *user), const void *user)
{
    struct stat st;
    const bool there = target && !stat(target, &st);
    const mode_t mode = there ? st.st_mode & 0777 : 0666;
    int fd = open(name, O_WRONLY | O_CLOEXEC | (target ? O_CREAT | O_EXCL : O_NOCTTY | O_TRUNC), mode);
    if (fd >= 0 && there)
        fchmod(fd, mode);
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
    if (bad && target && fd >= 0)
        unlink(name);
    return bad ? reason : 0;
}

/* 0 or errno. */
static int copy_into(const char *target, const char *name)
{
    char buffer[1 << 14];
    FILE *from = fopen(name, "rb");
    const int fd = from ? open(target, O_WRONLY | O_TRUNC | O_CLOEXEC) : -1;
    FILE *to = fd >= 0 ? fdopen(fd, "wb") : NULL;
    bool bad = !to;
    for (size_t n; !bad && (n = fread(buffer, 1, sizeof(buffer), from)) > 0;)
        bad = fwrite(buffer, 1, n, to) != n;
    bad = bad || ferror(from) || fflush(to);
    int reason = errno;
    if (to ? fclose(to) && !bad : fd >= 0 && close(fd)) {
        bad = true;
        reason = errno;
    }
    if (from)
        fclose(from);
    return bad ? reason : 0;
}

/* What is complete takes the target's place. Where no file may, it is copied; where that fails, too, it stays (*kept). 0 or errno. */
static int take_place(const char *name, const char *target, bool *kept)
{
    if (!rename(name, target))
        return 0;
    int reason = errno;
    *kept = reason == EBUSY || reason == EPERM || reason == EACCES;
    if (*kept && !(reason = copy_into(target, name)))
        *kept = false;
    if (!*kept)
        unlink(name);
    return reason;
}

/* As the library writes. What a killed process has left may have the name: in a container the next one often has its number. *complete:
 * where all of it lies if it could not get there; free it. 0 or errno. */
static int write_beside(const char *target, void (*fill)(FILE *file, const void *user), const void *user, char **complete)
{
    int reason = EEXIST;
    bool kept = false;
    for (int i = 0; reason == EEXIST && i < 100; i++) {
        char *name = unfinished_name(target, i);
        reason = name ? write_to(name, target, fill, user) : ENOMEM;
        if (!reason)
            reason = take_place(name, target, &kept);
        if (kept)
            *complete = name;
        else
            free(name);
    }
    if (!kept && (reason == EPERM || reason == EACCES) && !access(target, W_OK)) /* no new file in this folder */
        reason = write_to(target, NULL, fill, user);
    return reason;
}

int output_write(const char *path, void (*fill)(FILE *file, const void *user), const void *user)
{
    bool straight;
    char *target, *complete = NULL;
    int code = find_target(path, &straight, &target), reason = 0;
    if (code == GO_ON) {
        interrupt_hold(true);
        reason = straight ? write_to(path, NULL, fill, user) : write_beside(target, fill, user, &complete);
        interrupt_hold(false);
    }
    free(target);
    if (reason)
        code = failed("%s: could not be written: %s%s%s", path, strerror(reason), complete ? "; it is complete in " : "",
                      complete ? complete : "");
    free(complete);
    return code;
}
