/* strtod of the locale "C". */
#include "core/number.h"

#include <locale.h>
#include <stdlib.h>

double tern_number_parse(const char *text, char **end)
{
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0); /* the program's own may have a comma for the point */
    const double value = c ? strtod_l(text, end, c) : strtod(text, end);
    if (c)
        freelocale(c);
    return value;
}
