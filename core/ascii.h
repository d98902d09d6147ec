/* Letters without a locale: in a Turkish program tolower('I') is no 'i'. */
#ifndef TERN_CORE_ASCII_H
#define TERN_CORE_ASCII_H

#include <stdbool.h>
#include <string.h>

static inline char tern_ascii_lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c; }

/* In any case of letters: whether text begins with `what`, is it, ends with it. */
static inline bool tern_ascii_begins(const char *text, const char *what)
{
    for (; *what; text++, what++)
        if (tern_ascii_lower(*text) != tern_ascii_lower(*what))
            return false;
    return true;
}
static inline bool tern_ascii_is(const char *text, const char *what)
{
    return strlen(text) == strlen(what) && tern_ascii_begins(text, what);
}
static inline bool tern_ascii_ends(const char *text, const char *what)
{
    const size_t n = strlen(text), k = strlen(what);
    return n >= k && tern_ascii_begins(text + n - k, what);
}

#endif
