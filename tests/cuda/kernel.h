/* What a compiled kernel of the stand-in shows to the driver that runs it; part of every compiled source, and of the runner. */
#ifndef TERN_TESTS_CUDA_KERNEL_H
#define TERN_TESTS_CUDA_KERNEL_H

enum { STANDIN_ARGUMENTS = 24 };
enum { STANDIN_VALUE = 0, STANDIN_READS, STANDIN_WRITES };

struct standin_three {
    unsigned x, y, z;
};

/* One item (thread) of a group (block). */
struct standin_item {
    struct standin_three thread, group, size, groups;
};

/* What it says to the matrix units: tests/matrix_units.h, whose struct it fills. */
typedef void (*standin_matrix_word)(int word, int *x, int a, int b, int kind, int b_kind, void *tile, int i, int pitch, int line);

struct standin_kernel {
    int n_arguments;
    struct {
        unsigned size;  /* bytes */
        int kind;       /* a value, or a pointer that is read or written through */
        unsigned align; /* of what a pointer points to */
    } arguments[STANDIN_ARGUMENTS];
    int bounds;   /* items of a group at most, by __launch_bounds__; 0: not told */
    int barriers; /* in the text */
    int arch;
    char *shared, *shared_end; /* the group's memory */
    void (*invoke)(void **arguments);
    struct standin_item **now;  /* the item that runs */
    void (**barrier)(int line); /* the runner's, and its exchange within warps */
    unsigned (**exchange)(unsigned bits, int mask, int line);
    standin_matrix_word *matrix;
};

#endif
