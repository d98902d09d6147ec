/* What instructions on vectors of 512 bits cost beside products of bf16 (vdpbf16ps) that keep the processor busy: eight of them for sixteen
 * products, spread out and in lumps of 32. A kernel whose other work costs nothing there runs at the speed of its products. A table. */
#include <stdio.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <stdbool.h>
#include <stdlib.h>

#include "timing.h"

#define ROUNDS 4000
#define TURNS 15
#define TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512bf16")))
#define CLOBBERED                                                                                                                         \
    "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", \
        "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm30", "xmm31", "memory"

/* Sixteen products, each to a sum of its own, from registers that are zero. */
#define ZERO "vpxord %%zmm30, %%zmm30, %%zmm30\n\tvpxord %%zmm31, %%zmm31, %%zmm31\n\t"
#define DP(i) "vdpbf16ps %%zmm30, %%zmm31, %%zmm" #i "\n\t"
#define TWO(i, j) DP(i) DP(j)
#define PRODUCTS TWO(0, 1) TWO(2, 3) TWO(4, 5) TWO(6, 7) TWO(8, 9) TWO(10, 11) TWO(12, 13) TWO(14, 15)

/* Eight of an instruction, each with its own result: a register, or a line of memory. */
#define TO_REGISTER(text, i, at) text "%%zmm" #i "\n\t"
#define TO_HALF(text, i, at) text "%%ymm" #i "\n\t"
#define TO_MEMORY(text, i, at) text #at "(%0)\n\t"
#define EIGHT(to, text)                                                                                                        \
    to(text, 16, 0) to(text, 17, 64) to(text, 18, 128) to(text, 19, 192) to(text, 20, 256) to(text, 21, 320) to(text, 22, 384) \
        to(text, 23, 448)
#define SPREAD(to, text)                                                                                                           \
    TWO(0, 1)                                                                                                                      \
    to(text, 16, 0) TWO(2, 3) to(text, 17, 64) TWO(4, 5) to(text, 18, 128) TWO(6, 7) to(text, 19, 192) TWO(8, 9) to(text, 20, 256) \
        TWO(10, 11) to(text, 21, 320) TWO(12, 13) to(text, 22, 384) TWO(14, 15) to(text, 23, 448)
#define LUMPS(to, text) PRODUCTS PRODUCTS PRODUCTS PRODUCTS EIGHT(to, text) EIGHT(to, text) EIGHT(to, text) EIGHT(to, text)

/* X(name, where the result goes, what stands before it) */
#define INSTRUCTIONS(X)                                                 \
    X(vaddps, TO_REGISTER, "vaddps %%zmm30, %%zmm31, ")                 \
    X(vmaxps, TO_REGISTER, "vmaxps %%zmm30, %%zmm31, ")                 \
    X(vmulps, TO_REGISTER, "vmulps %%zmm30, %%zmm31, ")                 \
    X(vfmadd213ps, TO_REGISTER, "vfmadd213ps %%zmm30, %%zmm31, ")       \
    X(vreduceps, TO_REGISTER, "vreduceps $9, %%zmm31, ")                \
    X(vscalefps, TO_REGISTER, "vscalefps %%zmm30, %%zmm31, ")           \
    X(vcvtdq2ps, TO_REGISTER, "vcvtdq2ps %%zmm31, ")                    \
    X(vcvtps2dq, TO_REGISTER, "vcvtps2dq %%zmm31, ")                    \
    X(vcvtne2ps2bf16, TO_REGISTER, "vcvtne2ps2bf16 %%zmm30, %%zmm31, ") \
    X(vcvtneps2bf16, TO_HALF, "vcvtneps2bf16 %%zmm31, ")                \
    X(vpaddd, TO_REGISTER, "vpaddd %%zmm30, %%zmm31, ")                 \
    X(vpaddusw, TO_REGISTER, "vpaddusw %%zmm30, %%zmm31, ")             \
    X(vpavgw, TO_REGISTER, "vpavgw %%zmm30, %%zmm31, ")                 \
    X(vpmaxsw, TO_REGISTER, "vpmaxsw %%zmm30, %%zmm31, ")               \
    X(vpabsw, TO_REGISTER, "vpabsw %%zmm31, ")                          \
    X(vpmulhrsw, TO_REGISTER, "vpmulhrsw %%zmm30, %%zmm31, ")           \
    X(vpsrlw, TO_REGISTER, "vpsrlw $2, %%zmm31, ")                      \
    X(vpsrlvw, TO_REGISTER, "vpsrlvw %%zmm30, %%zmm31, ")               \
    X(vpslldq, TO_REGISTER, "vpslldq $2, %%zmm31, ")                    \
    X(vpshufb, TO_REGISTER, "vpshufb %%zmm30, %%zmm31, ")               \
    X(vpermb, TO_REGISTER, "vpermb %%zmm30, %%zmm31, ")                 \
    X(vpermi2w, TO_REGISTER, "vpermi2w %%zmm30, %%zmm31, ")             \
    X(vpackssdw, TO_REGISTER, "vpackssdw %%zmm30, %%zmm31, ")           \
    X(vpmovdw, TO_HALF, "vpmovdw %%zmm31, ")                            \
    X(vpternlogd, TO_REGISTER, "vpternlogd $0xf6, %%zmm30, %%zmm31, ")  \
    X(vpord, TO_REGISTER, "vpord %%zmm30, %%zmm31, ")                   \
    X(vpbroadcastd_register, TO_REGISTER, "vpbroadcastd %%xmm31, ")     \
    X(load, TO_REGISTER, "vmovdqu64 (%0), ")                            \
    X(load_of_one, TO_REGISTER, "vpbroadcastd (%0), ")                  \
    X(store, TO_MEMORY, "vmovdqu64 %%zmm31, ")                          \
    X(store_of_half, TO_MEMORY, "vmovdqu32 %%ymm31, ")

/* Code of instructions, and one round's. */
#define DEFINE(name, to, text)                                                                                 \
    TARGET static void name##_spread(void *p) { __asm__ volatile(ZERO SPREAD(to, text)::"r"(p) : CLOBBERED); } \
    TARGET static void name##_lumps(void *p) { __asm__ volatile(ZERO LUMPS(to, text)::"r"(p) : CLOBBERED); }
INSTRUCTIONS(DEFINE)

TARGET static void products(void *p) { __asm__ volatile(ZERO PRODUCTS PRODUCTS PRODUCTS PRODUCTS ::"r"(p) : CLOBBERED); }

static double seconds(void (*round)(void *), void *p)
{
    double found[TURNS];
    for (int t = 0; t < TURNS; t++) {
        const double start = now();
        for (int i = 0; i < ROUNDS; i++)
            round(p);
        found[t] = (now() - start) / ROUNDS;
    }
    return median(found, TURNS);
}

static bool is_there(void)
{
    unsigned a = 0, b, c, d;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && a >> 5 & 1 && __builtin_cpu_supports("avx512vbmi");
}

int main(void)
{
    static const struct {
        const char *name;
        void (*spread)(void *), (*lumps)(void *);
    } rows[] = {
#define ROW(name, to, text) {#name, name##_spread, name##_lumps},
        INSTRUCTIONS(ROW)};
    void *p = is_there() ? aligned_alloc(64, 512) : NULL;
    if (!p) {
        printf("no vdpbf16ps here\n");
        return 0;
    }
    printf("what one costs beside products, in the time of one of these\n\n| instruction | spread out | in lumps |\n|---|---|---|\n");
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        const double alone = seconds(products, p), spread = seconds(rows[i].spread, p), lumps = seconds(rows[i].lumps, p);
        printf("| %s | %.2f | %.2f |\n", rows[i].name, (spread * 64 / alone - 16) / 8, (lumps * 64 / alone - 64) / 32);
    }
    free(p);
    return 0;
}
#else
int main(void)
{
    printf("no vdpbf16ps here\n");
    return 0;
}
#endif
