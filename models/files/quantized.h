/* Quantised weights of files: tensors that are stored as whole numbers and scales, and read as the f32 values that these stand for. */
#ifndef TERN_MODELS_FILES_QUANTIZED_H
#define TERN_MODELS_FILES_QUANTIZED_H

#include "core/tensor.h"
#include "models/files/weights.h"

/* What a file says of itself in its metadata: the version of the format, and the words (tern_plan_params.quantize) of its UNet and of its
 * text encoders, in which names are those of diffusers folders. */
#define TERN_QUANTIZED_KEY "tern.quantization"
#define TERN_QUANTIZED_VERSION "1"
#define TERN_QUANTIZED_UNET "tern.quantize"
#define TERN_QUANTIZED_TEXT "tern.text_encoder_quantize"

/* A matrix or filter of that shape as the file has it: rows are output channels, and depth is what each has, tap by tap for 4 bits. */
struct tern_quantized_form {
    int bits; /* 8: i8 of the weight's shape; 4: i32 (rows, words) of 8 values each, the first in the lowest bits, 8 more than they are */
    int64_t rows, depth, channels, taps;
    int64_t words, groups; /* of a row: i32 of 4 bits; scales (8 bits: f32, one; 4 bits: bf16, one for each 32 values) */
};
/* False: no matrix or filter, or one without elements. */
bool tern_quantized_form(int bits, int ndim, const int64_t *shape, struct tern_quantized_form *out);
/* Bytes of a row: its numbers, its scales. */
size_t tern_quantized_row_size(const struct tern_quantized_form *f);
size_t tern_quantized_scale_size(const struct tern_quantized_form *f);

/* A row of a weight as kernels would quantise it. False: a value is no number or infinite. turned: room for depth values. Scales of zeros
 * are written as 1. */
bool tern_quantized_pack_row(const struct tern_quantized_form *f, const float *x, float *turned, void *numbers, void *scales);

/* A constant f32 tensor of that shape over numbers and scales, which it keeps: nothing is expanded before it is read. Its buffer has no
 * host pointer. `first`: the row of the numbers that is its first. Never belongs to a scope. NULL with the error recorded. */
tern_tensor *tern_quantized_tensor(tern_tensor *numbers, tern_tensor *scales, const struct tern_quantized_form *form, int64_t first,
                                   int ndim, const int64_t *shape);
/* 8 or 4 for such a tensor, else 0. */
int tern_quantized_bits(const tern_tensor *t);
/* What a tensor's elements are in its file, for people: its dtype, or behind those int8 and int4; its bytes there. */
enum { TERN_STORED_INT8 = TERN_DTYPE_COUNT, TERN_STORED_INT4, TERN_STORED_KINDS };
int tern_stored_kind(const tern_tensor *t);
const char *tern_stored_name(int kind);
int64_t tern_stored_bytes(const tern_tensor *t);
/* The same rows, or some of them, in another shape: tern_alias_tensor of such a tensor. */
tern_tensor *tern_quantized_alias(const tern_tensor *t, int ndim, const int64_t *shape, size_t first_byte);

/* In a set that was read from a file that says that it is quantised: each weight takes the place of its parts. Other sets stay. */
enum tern_status tern_quantized_join(struct tern_weights *w, const char *path);

#endif
