/* The levels of this build, lowest first: those that the option cpu_levels names and for which the compiler has the flags
 * (TERN_HAVE_LEVEL_<name>). */
#include "backends/cpu/level/level.h"

extern const struct tern_cpu_level tern_cpu_level_scalar, tern_cpu_level_avx2, tern_cpu_level_avxvnni, tern_cpu_level_avx512,
    tern_cpu_level_avx512vnni, tern_cpu_level_avx512bf16, tern_cpu_level_amx, tern_cpu_level_neon, tern_cpu_level_neondot,
    tern_cpu_level_neonbf16;

const struct tern_cpu_level *const tern_cpu_levels[] = {
    &tern_cpu_level_scalar,
#if defined(TERN_HAVE_LEVEL_avx2)
    &tern_cpu_level_avx2,
#endif
#if defined(TERN_HAVE_LEVEL_avxvnni)
    &tern_cpu_level_avxvnni,
#endif
#if defined(TERN_HAVE_LEVEL_avx512)
    &tern_cpu_level_avx512,
#endif
#if defined(TERN_HAVE_LEVEL_avx512vnni)
    &tern_cpu_level_avx512vnni,
#endif
#if defined(TERN_HAVE_LEVEL_avx512bf16)
    &tern_cpu_level_avx512bf16,
#endif
#if defined(TERN_HAVE_LEVEL_amx)
    &tern_cpu_level_amx,
#endif
#if defined(TERN_HAVE_LEVEL_neon)
    &tern_cpu_level_neon,
#endif
#if defined(TERN_HAVE_LEVEL_neondot)
    &tern_cpu_level_neondot,
#endif
#if defined(TERN_HAVE_LEVEL_neonbf16)
    &tern_cpu_level_neonbf16,
#endif
    NULL,
};
