/* Reading config.json. */
#include "models/modules/config.h"

#include <math.h>
#include <string.h>

#include "core/context.h"

enum tern_status tern_config_open(struct tern_config *c, struct tern_context *ctx, const char *text, const char *where)
{
    *c = (struct tern_config){ctx, where, NULL};
    if (!text)
        return tern_fail(ctx, TERN_E_NOT_FOUND, "%s: there is no configuration", where);
    c->json = tern_json_parse(ctx, text, strlen(text), where);
    if (c->json && !json_is_object(c->json))
        tern_fail(ctx, TERN_E_FORMAT, "%s: expected a JSON object", where);
    return tern_error_status(ctx);
}

void tern_config_close(struct tern_config *c)
{
    json_decref(c->json);
    c->json = NULL;
}

int64_t tern_config_int(const struct tern_config *c, const char *key, int64_t fallback, int64_t min, int64_t max)
{
    int64_t v = fallback;
    tern_json_int(c->ctx, c->json, c->where, key, min, max, &v);
    return v;
}

double tern_config_number(const struct tern_config *c, const char *key, double fallback)
{
    double v = fallback;
    tern_json_number(c->ctx, c->json, c->where, key, &v);
    return v;
}

bool tern_config_bool(const struct tern_config *c, const char *key, bool fallback)
{
    bool v = fallback && !json_is_null(json_object_get(c->json, key));
    tern_json_bool(c->ctx, c->json, c->where, key, &v);
    return v;
}

const char *tern_config_string(const struct tern_config *c, const char *key, const char *fallback)
{
    const char *v = fallback;
    tern_json_string(c->ctx, c->json, c->where, key, &v);
    return v;
}

int tern_config_list(const struct tern_config *c, const char *key, int max_n, int64_t min, int64_t max, int64_t *out)
{
    const json_t *list = json_object_get(c->json, key);
    if (!list || json_is_null(list))
        return 0;
    size_t n = json_array_size(list);
    if (!json_is_array(list) || n < 1 || n > (size_t)max_n) {
        tern_fail(c->ctx, TERN_E_FORMAT, "%s: \"%s\": expected a list of 1..%d integers", c->where, key, max_n);
        return 0;
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(list, i);
        if (!json_is_integer(v) || json_integer_value(v) < min || json_integer_value(v) > max) {
            tern_fail(c->ctx, TERN_E_FORMAT, "%s: \"%s\"[%zu]: expected an integer in %lld..%lld", c->where, key, i, (long long)min,
                      (long long)max);
            return 0;
        }
        out[i] = json_integer_value(v);
    }
    return (int)n;
}

void tern_config_ints(const struct tern_config *c, const char *key, int n, int64_t fallback, int64_t min, int64_t max, int64_t *out)
{
    const json_t *v = json_object_get(c->json, key);
    if (json_is_array(v)) {
        int64_t values[TERN_MAX_BLOCKS];
        int found = tern_config_list(c, key, TERN_MAX_BLOCKS, min, max, values);
        if (found == n)
            memcpy(out, values, (size_t)n * sizeof(*out));
        else if (found)
            tern_fail(c->ctx, TERN_E_FORMAT, "%s: \"%s\": expected %d entries, one a block, found %d", c->where, key, n, found);
        return;
    }
    int64_t all = tern_config_int(c, key, fallback, min, max);
    for (int i = 0; i < n; i++)
        out[i] = all;
}

int tern_config_strings(const struct tern_config *c, const char *key, int max_n, const char **out)
{
    const json_t *list = json_object_get(c->json, key);
    if (!list || json_is_null(list))
        return 0;
    size_t n = json_array_size(list);
    bool good = json_is_array(list) && n >= 1 && n <= (size_t)max_n;
    for (size_t i = 0; good && i < n; i++) {
        good = json_is_string(json_array_get(list, i));
        out[i] = json_string_value(json_array_get(list, i));
    }
    if (!good) {
        tern_fail(c->ctx, TERN_E_FORMAT, "%s: \"%s\": expected a list of 1..%d strings", c->where, key, max_n);
        return 0;
    }
    return (int)n;
}

static bool is_one_of(const char *word, const char *words)
{
    size_t n = strlen(word);
    for (const char *p = words; *p; p += strspn(p, " ")) {
        size_t m = strcspn(p, " ");
        if (m == n && !strncmp(p, word, n))
            return true;
        p += m;
    }
    return false;
}

void tern_config_only(const struct tern_config *c, const char *key, const char *allowed)
{
    const json_t *v = json_object_get(c->json, key);
    if (!v || json_is_null(v) || json_is_false(v))
        return;
    char *text = json_is_string(v) ? NULL : tern_json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);
    const char *word = json_is_string(v) ? json_string_value(v) : text;
    if (!word)
        tern_fail(c->ctx, TERN_E_NO_MEMORY, "%s: no memory to read it", c->where);
    else if (!is_one_of(word, allowed))
        tern_fail(c->ctx, TERN_E_UNSUPPORTED, "%s: \"%s\" is %.80s: this kind of model is not supported%s%s", c->where, key, word,
                  allowed[0] ? "; supported: " : "", allowed);
    free(text);
}
