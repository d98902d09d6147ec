/* Texts of options to values. Nothing is guessed: junk behind a number, a number out of range or an unknown name is refused. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "command.h"

static bool parse_int(const char *text, int64_t *out)
{
    const char *digits = text + (*text == '-');
    if (*digits < '0' || *digits > '9')
        return false;
    char *end;
    errno = 0;
    *out = strtoll(text, &end, 10);
    return !*end && !errno;
}

/* A decimal number and what stands behind it. */
static bool parse_number(const char *text, double *out, const char **rest)
{
    size_t n = strspn(text, "+-.0123456789eE");
    const char *digits = text + strspn(text, "+-");
    if (!n || (*digits != '.' && (*digits < '0' || *digits > '9')) || digits[1] == 'x' || digits[1] == 'X')
        return false;
    char *end;
    *out = strtod(text, &end);
    *rest = end;
    return end != text && isfinite(*out);
}

int value_int(const struct opt *opt, const char *text, int64_t min, int64_t max, int *out)
{
    int64_t v;
    const bool fits = parse_int(text, &v) && v >= min && v <= max;
    if (!fits && min == max)
        return usage("option --%s: expected %" PRId64 ", found \"%s\"", opt->name, min, text);
    if (!fits)
        return usage("option --%s: expected a whole number from %" PRId64 " to %" PRId64 ", found \"%s\"", opt->name, min, max, text);
    *out = (int)v;
    return GO_ON;
}

int value_side(const struct opt *opt, const char *text, int min, int *out)
{
    int code = value_int(opt, text, min, 8192, out);
    if (code == GO_ON && *out % 8)
        return usage("option --%s: expected a multiple of 8, found %d; %d and %d are near", opt->name, *out, *out / 8 * 8,
                     *out / 8 * 8 + 8);
    return code;
}

int value_number(const struct opt *opt, const char *text, double min, bool open, double max, double *out)
{
    double v;
    const char *rest;
    if (!parse_number(text, &v, &rest) || *rest || v < min || (open && v <= min) || v > max)
        return usage("option --%s: expected a number %s %g and at most %g, found \"%s\"", opt->name, open ? "above" : "of at least", min,
                     max, text);
    *out = v;
    return GO_ON;
}

int value_part(const struct opt *opt, const char *text, double *out)
{
    double v;
    const char *rest;
    if (!parse_number(text, &v, &rest) || *rest || v <= 0 || v >= 1)
        return usage("option --%s: expected a number above 0 and below 1, found \"%s\"", opt->name, text);
    *out = v;
    return GO_ON;
}

int value_seed(const struct opt *opt, const char *text, uint64_t *out, bool *given)
{
    *given = strcmp(text, "-1") != 0;
    if (!*given)
        return GO_ON;
    char *end;
    errno = 0;
    *out = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno)
        return usage("option --%s: expected a whole number from 0 to %" PRIu64 ", or -1 for a random one, found \"%s\"", opt->name,
                     UINT64_MAX, text);
    return GO_ON;
}

int value_bytes(const struct opt *opt, const char *text, size_t *out)
{
    static const struct {
        const char *name;
        double bytes;
    } units[] = {{"", 1},
                 {"b", 1},
                 {"k", 1024.0},
                 {"kib", 1024.0},
                 {"kb", 1e3},
                 {"m", 1048576.0},
                 {"mib", 1048576.0},
                 {"mb", 1e6},
                 {"g", 1073741824.0},
                 {"gib", 1073741824.0},
                 {"gb", 1e9},
                 {"t", 1099511627776.0},
                 {"tib", 1099511627776.0},
                 {"tb", 1e12}};
    double v;
    const char *rest;
    if (parse_number(text, &v, &rest)) {
        rest += *rest == ' ';
        for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
            if (!strcasecmp(rest, units[i].name) && v * units[i].bytes >= 1 && v * units[i].bytes < 9e18) {
                *out = (size_t)(v * units[i].bytes);
                return GO_ON;
            }
    }
    return usage("option --%s: expected a size such as 2GiB, 1.5G, 800MiB or 2000000000, found \"%s\"", opt->name, text);
}

int value_choice(const struct opt *opt, const char *text, const char *const *names, int *out)
{
    char list[256] = "";
    for (int i = 0; names[i]; i++) {
        if (!strcmp(text, names[i])) {
            *out = i;
            return GO_ON;
        }
        size_t n = strlen(list);
        snprintf(list + n, sizeof(list) - n, "%s%s", i ? ", " : "", names[i]);
    }
    return usage("option --%s: expected one of %s, found \"%s\"", opt->name, list, text);
}

const char *bytes_text(size_t bytes, char out[BYTES_TEXT])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double v = (double)bytes;
    int u = 0;
    for (; v >= 1024 && u < 4; u++)
        v /= 1024;
    snprintf(out, BYTES_TEXT, v < 10 && u ? "%.2f %s" : "%.0f %s", v, units[u]);
    return out;
}

int value_sampler(const struct opt *opt, const char *text, enum tern_sampler *out, enum tern_schedule *schedule, bool schedule_given)
{
    enum tern_schedule own = TERN_SCHEDULE_DEFAULT;
    *out = tern_sampler_parse(text, &own);
    *schedule = schedule_given ? *schedule : own;
    if (*out < TERN_SAMPLER_COUNT)
        return GO_ON;
    char list[256] = "";
    for (int i = TERN_SAMPLER_DEFAULT + 1; i < TERN_SAMPLER_COUNT; i++) {
        size_t n = strlen(list);
        snprintf(list + n, sizeof(list) - n, "%s%s", n ? ", " : "", tern_sampler_name((enum tern_sampler)i));
    }
    return usage("option --%s: there is no sampler \"%s\"; there are %s", opt->name, text, list);
}

int value_schedule(const struct opt *opt, const char *text, enum tern_schedule *out)
{
    *out = tern_schedule_parse(text);
    if (*out < TERN_SCHEDULE_COUNT)
        return GO_ON;
    char list[256] = "";
    for (int i = 0; i < TERN_SCHEDULE_COUNT; i++) {
        size_t n = strlen(list);
        snprintf(list + n, sizeof(list) - n, "%s%s", i ? ", " : "", tern_schedule_name((enum tern_schedule)i));
    }
    return usage("option --%s: there is no schedule \"%s\"; there are %s", opt->name, text, list);
}
