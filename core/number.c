/* strtod and printf of the locale "C". */
#include "core/number.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>

double tern_number_parse(const char *text, char **end)
{
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0); /* the program's own may have a comma for the point */
    const double value = c ? strtod_l(text, end, c) : strtod(text, end);
    if (c)
        freelocale(c);
    return value;
}

const char *tern_number_text(double v, char out[TERN_NUMBER_TEXT])
{
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0), before = c ? uselocale(c) : (locale_t)0;
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(out, TERN_NUMBER_TEXT, "%.*g", digits, v);
        if (tern_number_parse(out, NULL) == v)
            break;
    }
    if (c) {
        uselocale(before); /* of this thread */
        freelocale(c);
    }
    return out;
}
