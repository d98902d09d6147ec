/* Threads of a library that the program may use, too: they are as many as the context's during a call, and as many as before behind it. */
#ifndef TERN_BACKENDS_CPU_BORROW_H
#define TERN_BACKENDS_CPU_BORROW_H

#include <dlfcn.h>
#include <stddef.h>

struct cpu_borrowed {
    int (*get)(void); /* NULL, both: there is no such number */
    void (*set)(int);
};

static inline struct cpu_borrowed cpu_borrowed_find(void *library, const char *get, const char *set)
{
    struct cpu_borrowed b;
    *(void **)&b.get = dlsym(library, get);
    *(void **)&b.set = dlsym(library, set);
    return b.get && b.set ? b : (struct cpu_borrowed){NULL, NULL};
}

/* What it was. */
static inline int cpu_borrowed_use(const struct cpu_borrowed *b, int n)
{
    const int before = b->get ? b->get() : n;
    if (before != n)
        b->set(n);
    return before;
}

#endif
