#include "core/cores.h"

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATH 4096

/* The first line of a file; false where there is none. */
static bool read_line(const char *folder, const char *name, char *line, int size)
{
    char path[PATH + 32];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *f = fopen(path, "re");
    const bool good = f && fgets(line, size, f);
    if (f)
        fclose(f);
    return good;
}

/* The time that a group gets in a period: 0 where it is not limited. */
static int cores_of_group(const char *folder, bool second)
{
    char line[64], more[64], *behind = line;
    int64_t quota = 0, period = 0;
    if (second && read_line(folder, "cpu.max", line, sizeof(line))) {
        quota = strtoll(line, &behind, 10); /* "max" is no number */
        period = behind > line ? strtoll(behind, NULL, 10) : 0;
    } else if (!second && read_line(folder, "cpu.cfs_quota_us", line, sizeof(line)) &&
               read_line(folder, "cpu.cfs_period_us", more, sizeof(more))) {
        quota = strtoll(line, NULL, 10); /* -1: none */
        period = strtoll(more, NULL, 10);
    }
    const int64_t cores = quota > 0 && period > 0 ? quota / period + (quota % period > 0) : 0;
    return cores > 1 << 20 ? 0 : (int)cores;
}

/* The least that the group and those around it allow. */
static int least_of(const char *mount, const char *group, bool second)
{
    char folder[PATH];
    const size_t root = strlen(mount);
    int least = 0;
    if ((size_t)snprintf(folder, sizeof(folder), "%s%s", mount, group) >= sizeof(folder))
        return 0;
    for (char *end = folder + strlen(folder);; end = strrchr(folder, '/')) {
        *end = 0;
        const int cores = cores_of_group(folder, second);
        least = cores && (!least || cores < least) ? cores : least;
        if (strlen(folder) <= root)
            return least;
    }
}

static bool has_word(const char *list, const char *word)
{
    const size_t n = strlen(word);
    for (const char *at = list; *at; at += strcspn(at, ",") + (at[strcspn(at, ",")] == ','))
        if (strcspn(at, ",") == n && !memcmp(at, word, n))
            return true;
    return false;
}

int tern_cores_of_share(const char *groups, const char *folder)
{
    char line[PATH], mount[PATH];
    int least = 0;
    FILE *f = fopen(groups, "re");
    while (f && fgets(line, sizeof(line), f)) { /* number:controllers:path */
        char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path)
            continue;
        *path++ = 0;
        path[strcspn(path, "\n")] = 0;
        const bool second = !*++controllers;
        if (*path != '/' || (!second && !has_word(controllers, "cpu")))
            continue;
        snprintf(mount, sizeof(mount), second ? "%s" : "%s/%s", folder, controllers);
        const int cores = least_of(mount, strcmp(path, "/") ? path : "", second);
        least = cores && (!least || cores < least) ? cores : least;
    }
    if (f)
        fclose(f);
    return least;
}

int tern_core_count(void)
{
    cpu_set_t set;
    const long n = sched_getaffinity(0, sizeof(set), &set) ? sysconf(_SC_NPROCESSORS_ONLN) : CPU_COUNT(&set);
    const int cores = n < 1 ? 1 : (int)n, share = tern_cores_of_share("/proc/self/cgroup", "/sys/fs/cgroup");
    return share && share < cores ? share : cores;
}
