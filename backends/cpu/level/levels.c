/* The levels of this build, lowest first: those that the option cpu_levels names and for which the compiler has the flags
 * (TERN_HAVE_LEVEL_<name>). */
#include "backends/cpu/level/level.h"

#include <pthread.h>

extern const struct tern_cpu_level tern_cpu_level_scalar, tern_cpu_level_avx2, tern_cpu_level_avxvnni, tern_cpu_level_avx512,
    tern_cpu_level_avx512vnni, tern_cpu_level_avx512bf16, tern_cpu_level_amx, tern_cpu_level_neon, tern_cpu_level_neondot,
    tern_cpu_level_neonbf16;

static const struct tern_cpu_level *const texts[] = {
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
};

#define LEVELS (sizeof(texts) / sizeof(*texts))

static struct tern_cpu_level whole[LEVELS];
static const struct tern_cpu_level *levels[LEVELS + 1]; /* the last one is NULL */

static struct tern_cpu_level made_whole(const struct tern_cpu_level *l)
{
    if (!l->over)
        return *l;
    struct tern_cpu_level w = *l->over;
    w.name = l->name;
    w.available = l->available;
    w.emulated = l->emulated;
    w.i8 = l->i8;
    if (l->bf16.dot.step) {
        w.bf16 = l->bf16;
        w.bf16x3 = l->bf16x3;
        w.attention_bf16 = l->attention_bf16;
        w.attention_i8 = l->attention_i8;
    }
    return w;
}

static void make_whole(void)
{
    for (size_t i = 0; i < LEVELS; i++) {
        whole[i] = made_whole(texts[i]);
        levels[i] = &whole[i];
    }
}

const struct tern_cpu_level *const *tern_cpu_levels(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_whole);
    return levels;
}
