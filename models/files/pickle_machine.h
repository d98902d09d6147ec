/* The inside of the pickle machine: its stack, and how values are made. */
#ifndef TERN_MODELS_FILES_PICKLE_MACHINE_H
#define TERN_MODELS_FILES_PICKLE_MACHINE_H

#include "models/files/pickle.h"

typedef struct tern_pickle_value value;

struct tern_pickle {
    struct tern_context *ctx;
    const char *where;
    const uint8_t *data;
    size_t size, at, start; /* start: of this pickle in data */
    size_t op;              /* offset of the opcode that runs, for messages */

    struct tern_pickle_block *blocks; /* memory of the values */
    size_t allocated;

    value **stack;
    size_t depth, stack_capacity;
    size_t *marks;
    size_t mark_count, mark_capacity;
    value **memo;
    size_t memo_count, memo_capacity; /* count: highest index that was set, plus one */
    value **storages;
    size_t storage_count, storage_capacity;
    value *root;
};

/* Records "where: pickle at byte N: problem"; returns TERN_E_FORMAT. */
enum tern_status tern_pickle_fail(struct tern_pickle *p, const char *fmt, ...) TERN_PRINTF(2, 3);

/* Memory that lives as long as the pickle; NULL with the error recorded when there is none or the limit is reached. */
void *tern_pickle_alloc(struct tern_pickle *p, size_t size);
value *tern_pickle_value_new(struct tern_pickle *p, enum tern_pickle_type type);
value *tern_pickle_text_new(struct tern_pickle *p, enum tern_pickle_type type, const uint8_t *data, size_t size);
/* A tuple, list, set or dict of n items that are copied from `items`. */
value *tern_pickle_items_new(struct tern_pickle *p, enum tern_pickle_type type, value **items, size_t n);
enum tern_status tern_pickle_items_add(struct tern_pickle *p, value *v, value **items, size_t n);

/* Stack, marks, memo and input (pickle_stack.c). NULL or false: the error is recorded. */

/* Room for index `need` in an array of elements of `size` bytes, new ones cleared: the array, perhaps moved. */
void *tern_pickle_reserve(struct tern_pickle *p, void *array, size_t need, size_t *capacity, size_t size);
bool tern_pickle_push(struct tern_pickle *p, value *v); /* NULL is a value that could not be made */
value *tern_pickle_pop(struct tern_pickle *p);
value *tern_pickle_top(struct tern_pickle *p);
size_t tern_pickle_floor(const struct tern_pickle *p); /* values below the last mark may not be popped */
bool tern_pickle_push_mark(struct tern_pickle *p);
/* Takes the values above the last mark off the stack; they stay where they are until the next push. */
bool tern_pickle_pop_mark(struct tern_pickle *p, value ***items, size_t *n);
bool tern_pickle_memo_put(struct tern_pickle *p, uint64_t index);
bool tern_pickle_memo_get(struct tern_pickle *p, uint64_t index);
const uint8_t *tern_pickle_take(struct tern_pickle *p, uint64_t n);            /* the next n bytes */
bool tern_pickle_take_number(struct tern_pickle *p, int bytes, uint64_t *out); /* unsigned, little endian */
const char *tern_pickle_take_line(struct tern_pickle *p, size_t *n);           /* without its end */

/* A global by its names; refused and named when it is not on the list. */
value *tern_pickle_global(struct tern_pickle *p, const char *module, size_t module_size, const char *name, size_t name_size);
/* What calling a global with these arguments builds. */
value *tern_pickle_call(struct tern_pickle *p, const value *callable, const value *args);
/* Attributes of an object, which are of no interest (a state dict's _metadata, a parameter's hooks) but for the parameters of a module:
 * those are its items. False with the error recorded where nothing has attributes. */
bool tern_pickle_set_state(struct tern_pickle *p, value *object, const value *state);
/* What a persistent id stands for: a storage. */
value *tern_pickle_persistent(struct tern_pickle *p, const value *id);

#endif
