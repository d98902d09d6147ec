/* Whether the processor that runs has a level's instructions. */
#ifndef TERN_BACKENDS_CPU_LEVEL_AVAILABLE_H
#define TERN_BACKENDS_CPU_LEVEL_AVAILABLE_H

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

#include "backends/cpu/level/vec.h"

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

static bool has_vbmi(void)
{
    unsigned a, b, c = 0, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && c >> 1 & 1;
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
    has = has && has_bf16() && has_vbmi();
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

#endif
