/* Classes and lower case of code points as the reference tokenizers see them; unicode_tables.c is generated. */
#ifndef TERN_TOKENIZERS_UNICODE_TABLES_H
#define TERN_TOKENIZERS_UNICODE_TABLES_H

#include <stddef.h>
#include <stdint.h>

enum tern_cp_class {
    TERN_CP_LETTER,
    TERN_CP_NUMBER,
    TERN_CP_SPACE,
    TERN_CP_MARK,
    TERN_CP_PUNCTUATION,
    TERN_CP_DROPPED,
    TERN_CP_WORD, /* with TERN_CP_LETTER */
    TERN_CP_NORMALISING,
    TERN_CP_CLASS_COUNT
};

struct tern_range {
    uint32_t first, last;
};
struct tern_range_table {
    const struct tern_range *rows;
    size_t count;
};

struct tern_case_range {
    uint32_t first, last, step;
    int32_t difference;
};
struct tern_case_table {
    const struct tern_case_range *rows;
    size_t count;
};

extern const struct tern_range_table tern_range_tables[TERN_CP_CLASS_COUNT];
extern const struct tern_case_table tern_lower_table;

#endif
