/* A reader of XML that keeps nothing but the open elements. */
#include "xml_check.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>
#include <utf8proc.h>

#define DEEPEST 16

static size_t name_length(const char *at)
{
    size_t n = 0;
    while (isalnum((unsigned char)at[n]) || (n && strchr("-_:.", at[n]) && at[n]))
        n++;
    return isdigit((unsigned char)*at) ? 0 : n;
}

/* Behind one character or entity; NULL when it is not allowed. */
static const char *character(const char *at)
{
    static const char *const entities[] = {"&lt;", "&gt;", "&amp;", "&quot;"};
    utf8proc_int32_t c;
    for (int i = 0; i < 4; i++)
        if (!strncmp(at, entities[i], strlen(entities[i])))
            return at + strlen(entities[i]);
    utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)at, (utf8proc_ssize_t)strlen(at), &c);
    bool good = n > 0 && *at != '&' && *at != '<' && (c >= 0x20 || c == '\n' || c == '\t') && c != 0xfffe && c != 0xffff;
    return good ? at + n : NULL;
}

/* Behind the attributes, at ">" or "/>"; NULL. */
static const char *attributes(const char *at)
{
    while (isspace((unsigned char)*at)) {
        at += strspn(at, " \n\t");
        size_t n = name_length(at);
        if (!n)
            break;
        at += n;
        if (strncmp(at, "=\"", 2) != 0)
            return NULL;
        for (at += 2; at && *at && *at != '"';)
            at = character(at);
        if (!at || *at != '"')
            return NULL;
        at++;
    }
    return at;
}

const char *xml_check(const char *text)
{
    struct {
        const char *name;
        size_t length;
    } open[DEEPEST];
    int depth = 0, roots = 0;
    const char *at = text;
    while (*at) {
        if (*at != '<') {
            if (!depth && !isspace((unsigned char)*at))
                return "text outside of the root";
            at = character(at);
            if (!at)
                return "a character that is not allowed";
            continue;
        }
        bool close = at[1] == '/';
        const char *name = at + 1 + close;
        size_t n = name_length(name);
        at = n ? attributes(name + n) : NULL;
        if (!at)
            return "a tag that is not well-formed";
        bool empty = *at == '/';
        if (at[empty] != '>' || (close && empty))
            return "a tag without end";
        at += 1 + empty;
        if (close && (!depth || open[depth - 1].length != n || memcmp(open[depth - 1].name, name, n) != 0))
            return "an end without its start";
        if (!close && !depth && roots++)
            return "two roots";
        if (!close && !empty && depth == DEEPEST)
            return "too deep";
        if (!close && !empty) {
            open[depth].name = name;
            open[depth].length = n;
        }
        depth += close ? -1 : !empty;
    }
    return depth || !roots ? "no end" : NULL;
}
