/* SHA-256, by which files of models are known. */
#ifndef TERN_CORE_SHA256_H
#define TERN_CORE_SHA256_H

#include <stddef.h>
#include <stdint.h>

#define TERN_SHA256_TEXT 65
/* Of size bytes, as hexadecimal digits. */
void tern_sha256(const void *data, size_t size, char out[TERN_SHA256_TEXT]);

#endif
