/* The levels of this build, lowest first: those for which the compiler has the flags (TERN_HAVE_LEVEL_<name>). */
#include "backends/cpu/level/level.h"

extern const struct tern_cpu_level tern_cpu_level_scalar;
#if defined(__x86_64__)
extern const struct tern_cpu_level tern_cpu_level_avx2, tern_cpu_level_avx512, tern_cpu_level_avx512bf16, tern_cpu_level_amx;
#elif defined(__aarch64__)
extern const struct tern_cpu_level tern_cpu_level_neon, tern_cpu_level_neonbf16;
#endif

const struct tern_cpu_level *const tern_cpu_levels[] = {
    &tern_cpu_level_scalar,
#if defined(__x86_64__)
    &tern_cpu_level_avx2,
    &tern_cpu_level_avx512,
#elif defined(__aarch64__)
    &tern_cpu_level_neon,
#endif
#if defined(TERN_HAVE_LEVEL_avx512bf16)
    &tern_cpu_level_avx512bf16,
#endif
#if defined(TERN_HAVE_LEVEL_amx)
    &tern_cpu_level_amx,
#endif
#if defined(TERN_HAVE_LEVEL_neonbf16)
    &tern_cpu_level_neonbf16,
#endif
    NULL,
};
