/* What tests know of the devices in choose_backends.c. */
#ifndef TERN_TESTS_CHOOSE_BACKENDS_H
#define TERN_TESTS_CHOOSE_BACKENDS_H

enum choose_kind { CHOOSE_SLOW, CHOOSE_QUICK, CHOOSE_SOFT, CHOOSE_LOST, CHOOSE_KINDS };
extern int choose_launches[CHOOSE_KINDS];

#endif
