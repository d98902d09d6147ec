/* Matrix units in software, for the runners of kernel texts: the first item of a subgroup that comes to a word does it for all, a store is
 * done by the last one, and the others are held against the first. So a text that lacks a barrier finds what is not there yet; or, where
 * stores are early, what is not there any more. */
#ifndef TERN_TESTS_MATRIX_UNITS_H
#define TERN_TESTS_MATRIX_UNITS_H

#include <stddef.h>

#include "ops/kernels/host_item.h"

enum { MATRIX_MOST_ITEMS = 1024 };

/* Of a group, whose items make subgroups of so many; all zero but `early` before the first group, matrix_units_clear after the last. */
struct matrix_units {
    int n_items, subgroup;
    bool early;                      /* stores are done by the first item, too; the caller's */
    int words[MATRIX_MOST_ITEMS];    /* of each item since the last barrier */
    int matrices[MATRIX_MOST_ITEMS]; /* that each item has filled */
    struct matrix_subgroup *subgroups;
};

/* A new group: no matrix is filled. */
void matrix_units_start(struct matrix_units *u, int n_items, int subgroup);
/* What an item says. from .. to: the shared memory that m->tile is in; NULL when the array is unknown. NULL, or what is wrong. */
const char *matrix_units_word(struct matrix_units *u, int item, const struct tern_host_matrix *m, const void *from, const void *to);
/* All items have come to a barrier, or ended: NULL, or what is wrong. */
const char *matrix_units_barrier(struct matrix_units *u);
void matrix_units_clear(struct matrix_units *u);

#endif
