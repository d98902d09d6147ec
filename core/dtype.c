/* Data types: sizes and names. */
#include <string.h>
#include <tern/base.h>

#include "core/ascii.h"

static const struct {
    unsigned char size;
    const char *name, *torch_name;
} dtypes[TERN_DTYPE_COUNT] = {
    [TERN_F32] = {4, "f32", "float32"}, [TERN_F16] = {2, "f16", "float16"}, [TERN_BF16] = {2, "bf16", "bfloat16"},
    [TERN_I8] = {1, "i8", "int8"},      [TERN_U8] = {1, "u8", "uint8"},     [TERN_I32] = {4, "i32", "int32"},
    [TERN_I64] = {8, "i64", "int64"},   [TERN_BOOL] = {1, "bool", "bool"},
};

size_t tern_dtype_size(enum tern_dtype dtype) { return (unsigned)dtype < TERN_DTYPE_COUNT ? dtypes[dtype].size : 0; }

const char *tern_dtype_name(enum tern_dtype dtype) { return (unsigned)dtype < TERN_DTYPE_COUNT ? dtypes[dtype].name : "?"; }

bool tern_dtype_is_float(enum tern_dtype dtype) { return dtype == TERN_F32 || dtype == TERN_F16 || dtype == TERN_BF16; }

enum tern_dtype tern_dtype_parse(const char *name)
{
    if (!name)
        return TERN_DTYPE_COUNT;
    if (!strncmp(name, "torch.", 6))
        name += 6;
    for (int i = 0; i < TERN_DTYPE_COUNT; i++)
        if (tern_ascii_is(name, dtypes[i].name) || !strcmp(name, dtypes[i].torch_name))
            return (enum tern_dtype)i;
    return TERN_DTYPE_COUNT;
}
