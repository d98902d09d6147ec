/* Attention in int8 with sums of 32 bits, as [Zhang 2025, SageAttention]: keys without their mean, which no softmax sees, a scale for each
 * query and each block of keys. Powers are bytes, cut to whole numbers after a part of one was added that differs from key to key (ordered
 * dither [Roberts 1962]), so that many small powers keep their sum. */
#ifndef TERN_BACKENDS_CPU_LEVEL_ATTENTION_I8_H
#define TERN_BACKENDS_CPU_LEVEL_ATTENTION_I8_H

#include "backends/cpu/level/attention.h"
#include "backends/cpu/level/i8.h"

#if defined(LEVEL_ATTENTION)
#define LEVEL_ATTENTION_I8
#if defined(TERN_LEVEL_amx)
#include "backends/cpu/level/attention_i8_tiles.h"
#else
#include "backends/cpu/level/attention_i8_words.h"
#endif
#endif
#endif
