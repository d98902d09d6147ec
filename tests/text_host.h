/* Runs kernel texts that were expanded to host C: compiled by the system's compiler, loaded, every item of a group a coroutine. Finds
 * accesses outside of buffers, barriers that not all items reach, and missing barriers by the order of the items. */
#ifndef TERN_TESTS_TEXT_HOST_H
#define TERN_TESTS_TEXT_HOST_H

#include <stdbool.h>
#include <stddef.h>

struct text_host;

/* Compiles a source of TERN_TEXT_HOST. NULL with the compiler's words in message. */
struct text_host *text_host_load(const char *source, char *message, size_t size);
void text_host_free(struct text_host **k);

/* A buffer and the bytes of it that the kernel may touch (rounded to whole words). */
struct text_buffer {
    void *base;
    size_t begin, end;
};

/* Between barriers items run one after the other: from the first on, from the last on, or in an order without order. A kernel that
 * lacks a barrier gives other results in at least one of them. */
enum text_order { TEXT_FORWARD = 0, TEXT_REVERSE, TEXT_SHUFFLED, TEXT_ORDERS };

/* False with the reason in message. From one thread at a time: the stacks of items are kept. */
bool text_host_run(struct text_host *k, const int groups[3], const void *params, size_t params_size, const struct text_buffer *buffers,
                   int n_buffers, enum text_order order, char *message, size_t size);

#endif
