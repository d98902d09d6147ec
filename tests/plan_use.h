/* Whatever plan a damaged file gave is bound and run, so that sanitizers see what it touches. */
#ifndef TERN_TESTS_PLAN_USE_H
#define TERN_TESTS_PLAN_USE_H

#include <tern/graph.h>

/* With weights and inputs of zeros. Errors are allowed and cleared; plans that would take long are left. True: it ran. */
bool plan_use(struct tern_plan *plan);

#endif
