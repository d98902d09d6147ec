/* config.json of a component: values with their defaults, and the keys that change the architecture in ways that tern does
 * not have, which are refused by name. */
#ifndef TERN_MODELS_CONFIG_H
#define TERN_MODELS_CONFIG_H

#include "core/json.h"

#define TERN_MAX_BLOCKS 8

struct tern_config {
    struct tern_context *ctx;
    const char *where; /* for messages */
    json_t *json;
};

enum tern_status tern_config_open(struct tern_config *c, struct tern_context *ctx, const char *text, const char *where);
void tern_config_close(struct tern_config *c);

/* Values; absent or null gives `fallback`, but a null is no true: diffusers reads flags as truth values, and None is none. Errors are
 * recorded in the context. */
int64_t tern_config_int(const struct tern_config *c, const char *key, int64_t fallback, int64_t min, int64_t max);
double tern_config_number(const struct tern_config *c, const char *key, double fallback);
bool tern_config_bool(const struct tern_config *c, const char *key, bool fallback);
const char *tern_config_string(const struct tern_config *c, const char *key, const char *fallback);
/* A list of integers, or one integer for all `n`; absent: fallback for all. A list of another length is an error. */
void tern_config_ints(const struct tern_config *c, const char *key, int n, int64_t fallback, int64_t min, int64_t max, int64_t *out);
/* Number of entries of a list of integers of any length 1..max_n; absent: 0. */
int tern_config_list(const struct tern_config *c, const char *key, int max_n, int64_t min, int64_t max, int64_t *out);
/* Strings of a list (borrowed); returns their number, 0 when absent. */
int tern_config_strings(const struct tern_config *c, const char *key, int max_n, const char **out);
/* Records an error unless the key is absent, null, false or equal to one of the given JSON texts (space-separated words). */
void tern_config_only(const struct tern_config *c, const char *key, const char *allowed);

#endif
