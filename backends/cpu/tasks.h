/* Tasks of a product C = A B: blocks of rows times parts of the panels. */
#ifndef TERN_CPU_TASKS_H
#define TERN_CPU_TASKS_H

#include <stdint.h>

struct cpu_task_place {
    int64_t block, part;
};

/* Where task i of blocks x parts lies. Those of the larger one of A (rows x depth) and B (depth x columns) are taken one after the other,
 * so that a thread, which begins with neighbours, reads its part of it. */
static inline struct cpu_task_place cpu_task_place(int64_t i, int64_t blocks, int64_t parts, int64_t rows, int64_t columns)
{
    if (columns > rows)
        return (struct cpu_task_place){i % blocks, i / blocks};
    return (struct cpu_task_place){i / parts, i % parts};
}

#endif
