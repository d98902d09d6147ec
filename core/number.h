/* Numbers in texts that every locale reads alike. */
#ifndef TERN_CORE_NUMBER_H
#define TERN_CORE_NUMBER_H

#include <locale.h>

/* Between these two this thread's numbers have a point, whatever the program's locale has in its place; leave takes what enter gave. */
locale_t tern_number_enter(void);
void tern_number_leave(locale_t before);
/* strtod with a point. end may be NULL. */
double tern_number_parse(const char *text, char **end);
/* The shortest decimal of six digits or more that gives the number back; returns out. */
#define TERN_NUMBER_TEXT 32
const char *tern_number_text(double v, char out[TERN_NUMBER_TEXT]);

#endif
