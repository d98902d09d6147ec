/* Kernel texts as source: a text, with what the host defines, in one of the four languages. Nothing is compiled here. */
#ifndef TERN_OPS_KERNELS_TEXT_H
#define TERN_OPS_KERNELS_TEXT_H

#include <tern/base.h>

enum tern_text_language { TERN_TEXT_CUDA = 0, TERN_TEXT_OPENCL, TERN_TEXT_GLSL, TERN_TEXT_HOST, TERN_TEXT_LANGUAGES };

/* The complete source of `text` ("softmax": ops/kernels/softmax.cl). `defines` has a line "NAME VALUE" for each macro, which ends in a
 * newline. Free with tern_free; NULL (error recorded) when there is no such text, or no memory. */
char *tern_text_source(struct tern_context *ctx, enum tern_text_language language, const char *text, const char *defines);

/* The name of the kernel in the source; GLSL knows only "main". Static. */
const char *tern_text_entry(enum tern_text_language language);

/* Text number i by name, NULL behind the last. */
const char *tern_text_name(int i);

#endif
