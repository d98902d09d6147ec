/* One level: compiled once per instruction set with TERN_LEVEL_<name> defined and the compiler told that it may use
 * that set. Only the table leaves this file. */
#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(TERN_LEVEL_amx) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#if (defined(TERN_LEVEL_neondot) || defined(TERN_LEVEL_neonbf16)) && defined(__linux__)
#include <sys/auxv.h>
#endif

#include "backends/cpu/level/attention.h"
#include "backends/cpu/level/attention_f32.h"
#include "backends/cpu/level/attention_i8.h"
#include "backends/cpu/level/bf16.h"
#include "backends/cpu/level/convert.h"
#include "backends/cpu/level/elementwise.h"
#include "backends/cpu/level/gemm.h"
#include "backends/cpu/level/i8.h"
#include "backends/cpu/level/peak.h"
#include "backends/cpu/level/rows.h"
#include "backends/cpu/level/weights.h"
#include "backends/cpu/level/winograd.h"
#include "backends/cpu/level/winograd_i8.h"

#ifdef TERN_LEVEL_256
/* clang 14's __builtin_cpu_supports has no name for it. */
static bool has_f16c(void)
{
    unsigned a, b, c = 0, d;
    return __get_cpuid(1, &a, &b, &c, &d) && c & bit_F16C;
}
#endif

/* Leaf 7 of cpuid: not every compiler's __builtin_cpu_supports has names for these. */
#if defined(TERN_LEVEL_VNNI) && defined(TERN_LEVEL_512)
static bool has_vnni(void)
{
    unsigned a, b, c = 0, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && c >> 11 & 1;
}
#elif defined(TERN_LEVEL_VNNI) && !defined(TERN_EMULATE_TILES)
static bool has_vnni(void)
{
    unsigned a = 0, b, c, d;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && a >> 4 & 1;
}
#elif defined(TERN_LEVEL_256) || defined(TERN_LEVEL_512)
static bool has_vnni(void) { return true; } /* is not asked for, or computed without */
#endif

#if defined(TERN_LEVEL_BF16) && defined(TERN_LEVEL_512)
static bool has_bf16(void)
{
    unsigned a = 0, b, c, d;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && a >> 5 & 1;
}
#endif

#if defined(TERN_LEVEL_amx) && defined(TERN_EMULATE_TILES)
static bool has_amx_bf16(void) { return true; }
#elif defined(TERN_LEVEL_amx)
/* Linux gives the tiles to a process that asks for them (arch_prctl ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA; kernel 5.16), for all of
 * its threads. To ask again changes nothing. */
static bool may_use_tiles(void)
{
#ifdef __linux__
    return syscall(SYS_arch_prctl, 0x1023, 18) == 0;
#else
    return false;
#endif
}

static bool has_amx_bf16(void)
{
    unsigned a, b, c, d = 0;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && d >> 22 & 1 && d >> 24 & 1 && d >> 25 & 1 && may_use_tiles();
}
#endif

/* The kernel's word, which needs no /proc. */
#if defined(TERN_LEVEL_neonbf16) && defined(__linux__)
/* HWCAP2_BF16 and HWCAP2_I8MM: processors have both or none. */
static bool has_extensions(void)
{
    const unsigned long caps = getauxval(AT_HWCAP2);
    return caps >> 14 & 1 && caps >> 13 & 1;
}
#elif defined(TERN_LEVEL_neondot) && defined(__linux__)
/* HWCAP_ASIMDDP */
static bool has_extensions(void) { return getauxval(AT_HWCAP) >> 20 & 1; }
#elif defined(TERN_LEVEL_neonbf16) || defined(TERN_LEVEL_neondot)
static bool has_extensions(void) { return false; }
#endif

static bool available(void)
{
#if defined(TERN_LEVEL_512)
    bool has = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
               __builtin_cpu_supports("avx512dq");
    has = has && has_vnni();
#if defined(TERN_LEVEL_BF16)
    has = has && has_bf16();
#endif
#if defined(TERN_LEVEL_amx)
    has = has && has_amx_bf16();
#endif
    return has;
#elif defined(TERN_LEVEL_256)
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c() && has_vnni();
#elif defined(TERN_LEVEL_neonbf16) || defined(TERN_LEVEL_neondot)
    return has_extensions();
#else
    return true;
#endif
}

extern const struct tern_cpu_level LEVEL(tern_cpu_level);
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
    .mr = MR,
    .nr = NR,
    .gemm_tile = gemm_tile,
    .gemm_tile_ahead = gemm_tile_ahead,
    .geglu = geglu,
#if defined(TERN_LEVEL_BF16)
    .bf16 = {{BF16_STEP, bf16_begin, bf16_end, bf16_block}, BF16_GAIN, bf16_round, multiply_add_bf16},
#endif
    .i8 = {{I8_STEP, i8_begin, i8_end, i8_block}, I8_GAIN, I8_ZERO, i8_most, i8_quantize, i8_scale, I8_PEAK},
    .winograd_i8 = {winograd_i8_input, winograd_i8_most, winograd_i8_filter, winograd_i8_output},
    .attention_f32 = {sizeof(struct f32_scratch), F32_QUERIES, F32_TASK, F32_KEYS, 1, 1, NR / 2, false, VW, true, attend_f32, f32_pack_keys,
                      f32_pack_values, f32_power},
#if defined(LEVEL_ATTENTION)
    .attention_bf16 = {sizeof(struct attention_scratch), QUERIES, TASK_ROWS, KEYS, BF16_STEP, PAIR, 16, SUMS == 0, SUMS, false, attend,
                       pack_keys, pack_values, attention_power},
#endif
#if defined(LEVEL_ATTENTION_I8)
    .attention_i8 = {sizeof(struct i8_scratch), TASK_ROWS, attend_i8, i8_pack_keys, i8_pack_values},
#endif
#define UNARY_ENTRY(which, name, expression) [TERN_CPU_##which] = unary_##name,
#define UNARY_OF_ENTRY(which, name, expression) [TERN_CPU_##which] = unary_of_##name,
#define BINARY_ENTRY(which, name, expression) [TERN_CPU_##which] = binary_##name,
#define BINARY_OF_ENTRY(which, name, expression) [TERN_CPU_##which] = binary_of_##name,
    .unary = {UNARY_ROWS(UNARY_ENTRY)},
    .binary = {BINARY_ROWS(BINARY_ENTRY)},
    .unary_of = {UNARY_ROWS(UNARY_OF_ENTRY)},
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
};
