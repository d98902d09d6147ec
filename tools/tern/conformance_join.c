/* Parts of one run, which were run one after another: their reports as one. A slow device is so checked stage by stage. */
#include <stdint.h>

#include "conformance_report.h"

static const char *const facts[] = {"device", "level", "description", "version"}, *const sums[] = {"checks", "passed", "failed", "skipped"};

static bool same_device(const json_t *a, const json_t *b)
{
    for (int i = 0; i < 4; i++)
        if (!json_equal(json_object_get(a, facts[i]), json_object_get(b, facts[i])))
            return false;
    return true;
}

/* A group that both have was run twice: those are two runs. */
static bool are_parts(const json_t *a, const json_t *b)
{
    size_t i;
    const json_t *g;
    json_array_foreach(json_object_get(a, "groups"), i, g)
        if (report_same_group(b, g))
            return false;
    return same_device(a, b);
}

static json_int_t added(const json_t *a, const json_t *b, const char *key)
{
    uint64_t x = (uint64_t)json_integer_value(json_object_get(a, key)); /* a file may hold any number */
    return (json_int_t)(x + (uint64_t)json_integer_value(json_object_get(b, key)));
}

static int add_part(json_t *whole, const json_t *part)
{
    double seconds = json_number_value(json_object_get(whole, "seconds")) + json_number_value(json_object_get(part, "seconds"));
    int bad = json_array_extend(json_object_get(whole, "groups"), json_object_get(part, "groups"));
    for (int i = 0; i < 4; i++)
        bad |= json_object_set_new(whole, sums[i], json_integer(added(whole, part, sums[i])));
    return bad | json_object_set_new(whole, "seconds", json_real(seconds));
}

/* A report of its own that changes with the join; the groups themselves are shared. */
static json_t *copy_of(const json_t *report)
{
    json_t *o = json_copy((json_t *)(uintptr_t)report);
    if (o && !json_object_set_new(o, "groups", json_copy(json_object_get(report, "groups"))))
        return o;
    json_decref(o);
    return NULL;
}

json_t *report_join(const json_t *reports)
{
    size_t i, k;
    const json_t *part;
    json_t *out = json_array();
    int bad = !out;
    json_array_foreach(reports, i, part) {
        for (k = 0; k < json_array_size(out) && !are_parts(json_array_get(out, k), part); k++)
            ;
        if (k < json_array_size(out))
            bad |= add_part(json_array_get(out, k), part);
        else
            bad |= json_array_append_new(out, copy_of(part));
    }
    if (!bad)
        return out;
    json_decref(out);
    return NULL;
}
