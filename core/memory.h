/* The tracked allocator: every byte of a context is counted against its budget. */
#ifndef TERN_CORE_MEMORY_H
#define TERN_CORE_MEMORY_H

#include <tern/base.h>

/* Bytes in front of every block: the size of both (size_t), then nothing; alignment of all memory. */
#define TERN_MEMORY_HEADER ((size_t)64)

/* 64-byte aligned memory, not cleared. NULL (error recorded) when there is none or the budget is
 * reached; caches are freed and the allocation tried again before that. size 0 gives a valid pointer. Thread safe. */
void *tern_alloc(struct tern_context *ctx, size_t size);
/* Cleared memory for n elements; refuses n * size that overflows. */
void *tern_calloc(struct tern_context *ctx, size_t n, size_t size);
/* Grows or shrinks, keeps the contents. On failure NULL, and `ptr` stays valid. */
void *tern_realloc(struct tern_context *ctx, void *ptr, size_t size);
/* Room for one more element of `size` bytes in an array of `count`: doubles its capacity when it is full. False, with the error
 * recorded and the array as it was, without memory. */
bool tern_grow(struct tern_context *ctx, void **array, int count, int *capacity, size_t size);
/* NULL is allowed. Thread safe. */
void tern_free(struct tern_context *ctx, void *ptr);

/* Asks the system at once, with all threads, for the pages of new memory that will be written whole: one fault for each page takes longer.
 * Huge pages where there are such, but in memory of the caller's allocator. What is in them stays. Linux before 5.14 has no such call: they
 * come as they are written. */
void tern_memory_populate(struct tern_context *ctx, void *ptr, size_t size);

/* tern_memory_trim of what devices keep for reuse, which counts as used. What that leaves free the next blocks take. */
void tern_memory_trim_devices(struct tern_context *ctx);

/* Counts memory that a device has of its own against the budget; caches are freed before it is refused. */
enum tern_status tern_memory_charge(struct tern_context *ctx, const char *device, size_t size);
void tern_memory_discharge(struct tern_context *ctx, size_t size);
/* The budget that holds now; 0: none. */
size_t tern_memory_limit(const struct tern_context *ctx);

/* The peak becomes at least that: after a part that was measured alone. */
void tern_memory_raise_peak(struct tern_context *ctx, size_t peak);

/* Copies of strings; free with tern_free. */
char *tern_strdup(struct tern_context *ctx, const char *s);
char *tern_strndup(struct tern_context *ctx, const char *s, size_t n);
char *tern_sprintf(struct tern_context *ctx, const char *fmt, ...) TERN_PRINTF(2, 3);

/* a * b, false when it does not fit. */
static inline bool tern_mul_size(size_t a, size_t b, size_t *out) { return !__builtin_mul_overflow(a, b, out); }

#endif
