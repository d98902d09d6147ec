/* Status codes, data types and linkage: what every other public header builds on. Before version 1.0 structs grow: a program is built with
 * the headers of the library that it runs with. */
#ifndef TERN_BASE_H
#define TERN_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define TERN_API __attribute__((visibility("default")))
#define TERN_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define TERN_API
#define TERN_PRINTF(fmt, args)
#endif

/* Largest number of dimensions of a tensor. */
#define TERN_MAX_DIMS 8

/* What went wrong. The message that goes with it is tern_error(). */
enum tern_status {
    TERN_OK = 0,
    TERN_E_INVALID,     /* an argument or option is wrong */
    TERN_E_SHAPE,       /* shapes do not fit together */
    TERN_E_DTYPE,       /* data types do not fit together */
    TERN_E_NOT_FOUND,   /* a file, tensor, op or device does not exist */
    TERN_E_IO,          /* the operating system refused to read or write */
    TERN_E_FORMAT,      /* a file is damaged or is not what it says */
    TERN_E_NO_MEMORY,   /* an allocation failed */
    TERN_E_BUDGET,      /* the memory budget is too small */
    TERN_E_UNSUPPORTED, /* valid, but not available here */
    TERN_E_DEVICE,      /* a driver or device failed */
    TERN_E_CANCELLED,   /* the cancel callback said so */
    TERN_E_INTERNAL     /* a defect in tern */
};

/* Element types. Names and meaning are PyTorch's. */
enum tern_dtype { TERN_F32 = 0, TERN_F16, TERN_BF16, TERN_I8, TERN_U8, TERN_I32, TERN_I64, TERN_BOOL, TERN_DTYPE_COUNT };

/* Bytes of one element, 0 for a value that is no dtype. */
TERN_API size_t tern_dtype_size(enum tern_dtype dtype);

/* "f32", "bf16", … ; "?" for a value that is no dtype. The string is static. */
TERN_API const char *tern_dtype_name(enum tern_dtype dtype);

/* The dtype with that name ("f32", "float32", "F32", "torch.float32" …), or TERN_DTYPE_COUNT. */
TERN_API enum tern_dtype tern_dtype_parse(const char *name);

/* True for f32, f16 and bf16. */
TERN_API bool tern_dtype_is_float(enum tern_dtype dtype);

/* "invalid argument", … The string is static. */
TERN_API const char *tern_status_name(enum tern_status status);

/* "0.1.0" */
TERN_API const char *tern_version(void);

/* NULL in place of a context, of another object or of what a function is to read or fill is no crash: nothing happens, and TERN_E_INVALID,
 * NULL, 0 or false is returned, with the error recorded where a context is known. Where NULL means something, its function says so. */
struct tern_context;
typedef struct tern_tensor tern_tensor;

#ifdef __cplusplus
}
#endif
#endif
