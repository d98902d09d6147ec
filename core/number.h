/* Numbers in texts that every locale reads alike. */
#ifndef TERN_CORE_NUMBER_H
#define TERN_CORE_NUMBER_H

/* strtod with a point, whatever the program's locale has in its place. end may be NULL. */
double tern_number_parse(const char *text, char **end);
/* The shortest decimal of six digits or more that gives the number back; returns out. */
#define TERN_NUMBER_TEXT 32
const char *tern_number_text(double v, char out[TERN_NUMBER_TEXT]);

#endif
