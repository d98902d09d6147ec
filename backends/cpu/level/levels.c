/* The levels of this build, lowest first. */
#include "backends/cpu/level/level.h"

extern const struct tern_cpu_level tern_cpu_level_scalar;
#if defined(__x86_64__)
extern const struct tern_cpu_level tern_cpu_level_avx2, tern_cpu_level_avx512;
#endif

const struct tern_cpu_level *const tern_cpu_levels[] = {
    &tern_cpu_level_scalar,
#if defined(__x86_64__)
    &tern_cpu_level_avx2,
    &tern_cpu_level_avx512,
#endif
    NULL,
};
