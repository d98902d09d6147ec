/* One level: compiled once per instruction set with TERN_LEVEL_<name> defined and the compiler told that it may use
 * that set. Only the table leaves this file. */
#include "backends/cpu/level/attention.h"
#include "backends/cpu/level/attention_i8.h"
#include "backends/cpu/level/available.h"
#include "backends/cpu/level/bf16.h"
#include "backends/cpu/level/bf16x3.h"
#include "backends/cpu/level/geglu.h"
#include "backends/cpu/level/i8.h"
#include "backends/cpu/level/peak.h"
#if !defined(LEVEL_OVER)
#include "backends/cpu/level/attention_f32.h"
#include "backends/cpu/level/convert.h"
#include "backends/cpu/level/elementwise.h"
#include "backends/cpu/level/gemm.h"
#include "backends/cpu/level/norms.h"
#include "backends/cpu/level/rows.h"
#include "backends/cpu/level/weights.h"
#include "backends/cpu/level/winograd.h"
#include "backends/cpu/level/winograd_i16.h"
#include "backends/cpu/level/winograd_i8.h"
#endif

extern const struct tern_cpu_level LEVEL(tern_cpu_level);
#if defined(LEVEL_OVER)
extern const struct tern_cpu_level LEVEL_OVER;
#endif
const struct tern_cpu_level LEVEL(tern_cpu_level) = {
#if (defined(TERN_LEVEL_amx) || defined(TERN_LEVEL_avxvnni)) && defined(TERN_EMULATE_TILES)
    .emulated = true,
#endif
    .name =
#if defined(TERN_LEVEL_amx)
        "amx",
#elif defined(TERN_LEVEL_avx512bf16)
        "avx512bf16",
#elif defined(TERN_LEVEL_avx512vnni)
        "avx512vnni",
#elif defined(TERN_LEVEL_avx512)
        "avx512",
#elif defined(TERN_LEVEL_avxvnni)
        "avxvnni",
#elif defined(TERN_LEVEL_avx2)
        "avx2",
#elif defined(TERN_LEVEL_neonbf16)
        "neonbf16",
#elif defined(TERN_LEVEL_neondot)
        "neondot",
#elif defined(TERN_LEVEL_neon)
        "neon",
#else
        "scalar",
#endif
    .available = available,
#if defined(TERN_LEVEL_BF16)
    .bf16 = {{BF16_STEP, DOT_ROW_STEP, DOT_BLOCK, DOT_TILE, DOT_PAST_L1, bf16_begin, bf16_end, bf16_block}, BF16_GAIN, multiply_add_bf16},
#endif
#if defined(LEVEL_BF16X3)
    .bf16x3 = {{X3_STEP, DOT_ROW_STEP, DOT_BLOCK, 0, false, bf16_begin, bf16_end, x3_block}, x3_split_rows, x3_split_panel},
#endif
    .i8 = {{I8_STEP, DOT_ROW_STEP, DOT_BLOCK, DOT_TILE, DOT_PAST_L1, i8_begin, i8_end, i8_block},
           I8_GAIN,
           I8_ZERO,
           i8_most,
           i8_quantize,
           i8_weights,
           i8_scale,
           i8_geglu,
           I8_PEAK},
#if defined(LEVEL_ATTENTION)
    .attention_bf16 = {sizeof(struct attention_scratch), QUERIES, TASK_ROWS, KEYS, BF16_STEP, PAIR, 16, SUMS == 0, SUMS, false, attend,
                       pack_keys, pack_values, attention_power, quick_power, write_row},
#endif
#if defined(LEVEL_ATTENTION_I8)
    .attention_i8 = {sizeof(struct i8_scratch), TASK_ROWS, I8_DEPTH, I8_ONES, attend_i8, i8_pack_keys, i8_pack_values},
#endif
#if defined(LEVEL_OVER)
    .over = &LEVEL_OVER,
#else
    .mr = MR,
    .nr = NR,
    .gemm_tile = gemm_tile,
    .gemm_tile_ahead = gemm_tile_ahead,
    .geglu = geglu,
    .store_rows = store_rows,
    .winograd_i8 = {winograd_i8_input, winograd_i8_most, winograd_i8_filter, winograd_i8_output},
#if defined(LEVEL_WINOGRAD_I16)
    .winograd_i16 = {winograd_i16_input, winograd_i16_squares, winograd_i16_filter, winograd_i16_multiply},
#endif
    .attention_f32 = {sizeof(struct f32_scratch), F32_QUERIES, F32_TASK, F32_KEYS, 1, 1, NR / 2, false, VW, true, attend_f32, f32_pack_keys,
                      f32_pack_values, f32_power, NULL, f32_write},
#define UNARY_ENTRY(which, name, ...) [TERN_CPU_##which] = unary_##name,
#define UNARY_HALF_ENTRY(which, name, ...) [TERN_CPU_##which] = unary_half_##name,
#define UNARY_OF_ENTRY(which, name, ...) [TERN_CPU_##which] = unary_of_##name,
#define BINARY_ENTRY(which, name, expression) [TERN_CPU_##which] = binary_##name,
#define BINARY_OF_ENTRY(which, name, expression) [TERN_CPU_##which] = binary_of_##name,
    .unary = {UNARY_ROWS(UNARY_ENTRY, UNARY_ENTRY)},
    .unary_half = {UNARY_ROWS(UNARY_ENTRY, UNARY_HALF_ENTRY)},
    .binary = {BINARY_ROWS(BINARY_ENTRY)},
    .unary_of = {UNARY_ROWS(UNARY_OF_ENTRY, UNARY_OF_ENTRY)},
    .binary_of = {BINARY_ROWS(BINARY_OF_ENTRY)},
#if defined(TERN_LEVEL_BF16)
    .expand_bf16 = expand_bf16,
#endif
    .expand_f32 = expand_f32,
    .to_f32 = to_f32,
    .from_f32 = from_f32,
    .moments = moments,
    .moments_by_column = moments_by_column,
    .affine = affine,
    .normalize = normalize,
    .winograd_input = winograd_input,
    .winograd_output = winograd_output,
    .winograd_filter = winograd_filter,
    .max = max_of,
    .sum = sum_of,
    .exp_sum = exp_sum,
    .multiply_add = multiply_add,
#endif
};
