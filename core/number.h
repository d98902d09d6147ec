/* Numbers in texts that every locale reads alike. */
#ifndef TERN_CORE_NUMBER_H
#define TERN_CORE_NUMBER_H

/* strtod with a point, whatever the program's locale has in its place. end may be NULL. */
double tern_number_parse(const char *text, char **end);

#endif
