/* The texts of a picture: a short list of keys and UTF-8 values. Keys are PNG keywords, so that every text can be written. */
#include <string.h>
#include <utf8proc.h>

#include <tern/context.h>

#include "core/memory.h"
#include "core/status.h"
#include "models/images/image.h"

/* What the PNG specification (11.3.4.1) asks of a keyword, without the Latin-1 half: NULL, or what is wrong. */
static const char *bad_key(const char *key)
{
    size_t n = strlen(key);
    if (n < 1 || n > 79)
        return "has not 1 to 79 characters";
    if (key[0] == ' ' || key[n - 1] == ' ' || strstr(key, "  "))
        return "begins or ends with a blank, or has two in a row";
    for (size_t i = 0; i < n; i++)
        if (key[i] < 0x20 || key[i] > 0x7E)
            return "has characters that are not printable ASCII";
    return NULL;
}

/* Offset of the first byte that is no UTF-8, or -1. */
static int64_t bad_utf8(const char *s, size_t size)
{
    size_t at = 0;
    while (at < size) {
        utf8proc_int32_t c;
        utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)s + at, (utf8proc_ssize_t)(size - at), &c);
        if (n < 1)
            return (int64_t)at;
        at += (size_t)n;
    }
    return -1;
}

static struct tern_image_text **find(struct tern_image *img, const char *key)
{
    struct tern_image_text **at = &img->texts;
    while (*at && strcmp((*at)->key, key))
        at = &(*at)->next;
    return at;
}

static void take_out(struct tern_image *img, const char *key)
{
    struct tern_image_text **at = find(img, key), *t = *at;
    if (!t)
        return;
    *at = t->next;
    tern_free(img->ctx, t->key);
    tern_free(img->ctx, t->value);
    tern_free(img->ctx, t);
}

/* Puts a checked text into the list, in the place of an older one of that key; an empty one takes that out. */
static enum tern_status put(struct tern_image *img, const char *key, const char *value, size_t size)
{
    if (!size) {
        take_out(img, key);
        return TERN_OK;
    }
    char *copy = tern_strndup(img->ctx, value, size);
    if (!copy)
        return tern_error_status(img->ctx);
    struct tern_image_text **at = find(img, key);
    if (*at) {
        tern_free(img->ctx, (*at)->value);
        (*at)->value = copy;
        return TERN_OK;
    }
    struct tern_image_text *text = tern_calloc(img->ctx, 1, sizeof(*text));
    char *name = text ? tern_strdup(img->ctx, key) : NULL;
    if (!name) {
        tern_free(img->ctx, text);
        tern_free(img->ctx, copy);
        return tern_error_status(img->ctx);
    }
    *text = (struct tern_image_text){.key = name, .value = copy};
    *at = text;
    return TERN_OK;
}

enum tern_status tern_image_set_text(struct tern_image *img, const char *key, const char *value)
{
    if (!img)
        return TERN_E_INVALID;
    if (!key || !value)
        return tern_fail(img->ctx, TERN_E_INVALID, "tern_image_set_text: key or value is NULL");
    const char *reason = bad_key(key);
    if (reason)
        return tern_fail(img->ctx, TERN_E_INVALID, "tern_image_set_text: the key \"%.100s\" %s", key, reason);
    size_t size = strlen(value);
    if (size > TERN_IMAGE_MAX_TEXT)
        return tern_fail(img->ctx, TERN_E_INVALID, "tern_image_set_text: \"%s\" has %zu bytes, at most %u are allowed", key, size,
                         TERN_IMAGE_MAX_TEXT);
    int64_t at = bad_utf8(value, size);
    if (at >= 0)
        return tern_fail(img->ctx, TERN_E_INVALID, "tern_image_set_text: \"%s\" is no UTF-8 at byte %lld", key, (long long)at);
    return put(img, key, value, size);
}

const char *tern_image_text(const struct tern_image *img, const char *key)
{
    for (const struct tern_image_text *t = img && key ? img->texts : NULL; t; t = t->next)
        if (!strcmp(t->key, key))
            return t->value;
    return NULL;
}

enum tern_status tern_image_keep_text(struct tern_image *img, const char *path, const char *key, const char *value, size_t size)
{
    size = strnlen(value, size);
    if (bad_key(key) || size > TERN_IMAGE_MAX_TEXT || bad_utf8(value, size) >= 0) {
        tern_message(img->ctx, TERN_LOG_INFO, "%s: a text of %zu bytes is left out: bad key, too long or no UTF-8", path, size);
        return TERN_OK;
    }
    return put(img, key, value, size);
}
