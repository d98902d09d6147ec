/* strtod and printf of the locale "C". */
#include "core/number.h"

#include <stdio.h>
#include <stdlib.h>

locale_t tern_number_enter(void)
{
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    return c ? uselocale(c) : (locale_t)0;
}

void tern_number_leave(locale_t before)
{
    if (before)
        freelocale(uselocale(before));
}

double tern_number_parse(const char *text, char **end)
{
    locale_t before = tern_number_enter();
    const double value = strtod(text, end);
    tern_number_leave(before);
    return value;
}

const char *tern_number_text(double v, char out[TERN_NUMBER_TEXT])
{
    locale_t before = tern_number_enter();
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(out, TERN_NUMBER_TEXT, "%.*g", digits, v);
        if (strtod(out, NULL) == v)
            break;
    }
    tern_number_leave(before);
    return out;
}
