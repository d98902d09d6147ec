/* What a block of products costs on AMX beside its products: 32 rows times 32 columns, as linear layers and convolutions in bf16 have them.
 * Rows of A lie in L1, panels of B come from L2, sums stay in L1 or go to L2 and back, with a store now and then and without. Cycles are
 * counted in products: one in registers is sixteen. A table. */
#include <stdio.h>

#if defined(__x86_64__) && defined(__linux__) && defined(__AMX_TILE__)
#include <cpuid.h>
#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "timing.h"

#define STEP 32           /* values of the depth of a product */
#define A_ROW (11 * STEP) /* values between rows of A: an odd number of lines */
#define A_STEPS 10        /* of the depth, after which A begins anew: 20 KiB */
#define PANELS 8
#define BLOCKS 12     /* of rows, whose sums have places of their own */
#define MOST_STEPS 60 /* such panels take half of L2 */
#define STORE_STEPS 16
#define TURNS 15

struct operands {
    uint16_t *a, *b;
    float *c;
};

static bool is_there(void)
{
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && d >> 22 & 1 && !syscall(SYS_arch_prctl, 0x1023, 18);
}

static void configure(void)
{
    static const struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } config
        __attribute__((aligned(64))) = {.palette = 1, .bytes = {64, 64, 64, 64, 64, 64, 64, 64}, .rows = {16, 16, 16, 16, 16, 16, 16, 16}};
    _tile_loadconfig(&config);
}

static inline void multiply(void)
{
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
}

static void block(const struct operands *o, const uint16_t *b, float *c, int64_t ldc, int steps, bool adds, int store_steps)
{
    const int64_t row = ldc * 4;
    __asm__ volatile("" ::: "memory"); /* gcc does not know that a load of a tile reads memory */
    if (adds) {
        _tile_loadd(0, c, row);
        _tile_loadd(1, c + 16, row);
        _tile_loadd(2, c + 16 * ldc, row);
        _tile_loadd(3, c + 16 * ldc + 16, row);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int i = 0; i < steps; i++, b += 32 * STEP) {
        const uint16_t *a = o->a + i % A_STEPS * STEP;
        _tile_stream_loadd(6, b, 128);
        _tile_stream_loadd(7, b + 32, 128);
        _tile_loadd(4, a, A_ROW * 2);
        _tile_loadd(5, a + 16 * A_ROW, A_ROW * 2);
        multiply();
        if (store_steps && i % store_steps == store_steps - 1)
            _tile_stored(6, c, row);
    }
    _tile_stored(0, c, row);
    _tile_stored(1, c + 16, row);
    _tile_stored(2, c + 16 * ldc, row);
    _tile_stored(3, c + 16 * ldc + 16, row);
}

/* Cycles of a block beyond those of its products, the median. */
static double beyond(const struct operands *o, int steps, bool moves, int store_steps)
{
    const int64_t ldc = 32 * PANELS + 16;
    double found[TURNS];
    for (int t = 0; t < TURNS; t++) {
        const double start = now();
        for (int i = 0; i < BLOCKS * PANELS * steps; i++)
            multiply();
        const double middle = now();
        for (int i = 0; i < BLOCKS; i++)
            for (int p = 0; p < PANELS; p++)
                block(o, o->b + (int64_t)p * steps * 32 * STEP, moves ? o->c + i * 32 * ldc + p * 32 : o->c, ldc, steps, moves,
                      store_steps);
        found[t] = ((now() - middle) / (middle - start) - 1) * steps * 64;
    }
    return median(found, TURNS);
}

/* Nanoseconds of a product whose operands come from L1 each time, or stay. */
static double product(const struct operands *o, bool stay)
{
    const int rounds = 20000;
    double found[TURNS];
    for (int t = 0; t < TURNS; t++) {
        const double start = now();
        for (int i = 0; i < rounds * A_STEPS; i++) {
            const uint16_t *a = o->a + i % A_STEPS * STEP, *b = o->b + i % A_STEPS * 32 * STEP;
            if (!stay || !i) {
                _tile_loadd(6, b, 128);
                _tile_loadd(7, b + 32, 128);
                _tile_loadd(4, a, A_ROW * 2);
                _tile_loadd(5, a + 16 * A_ROW, A_ROW * 2);
            }
            multiply();
        }
        found[t] = (now() - start) / rounds / A_STEPS / 4 * 1e9;
    }
    return median(found, TURNS);
}

int main(void)
{
    if (!is_there()) {
        printf("no AMX here\n");
        return 0;
    }
    const size_t b = (size_t)PANELS * MOST_STEPS * 32 * STEP, a = (size_t)32 * A_ROW, c = (size_t)BLOCKS * 32 * (32 * PANELS + 16);
    struct operands o = {aligned_alloc(64, a * 2), aligned_alloc(64, b * 2), aligned_alloc(64, c * 4)};
    if (!o.a || !o.b || !o.c)
        return 1;
    uint32_t seed = 1;
    for (size_t i = 0; i < a + b; i++) { /* of either sign, 1/4 to 4: zeros would be faster */
        seed = seed * 1664525u + 1013904223u;
        *(i < a ? o.a + i : o.b + (i - a)) = (uint16_t)((seed >> 16 & 0x8000) | 0x3e80 | (seed >> 8 & 0x1ff) % 0x180);
    }
    memset(o.c, 0, c * 4);
    configure();
    printf("cycles of a block beyond its products, without a store in between and with one at every %d steps\n\n", STORE_STEPS);
    printf("| steps | cycles of products | sums in L1, without | with | sums from L2, without | with |\n|---|---|---|---|---|---|\n");
    for (int steps = 10; steps <= MOST_STEPS; steps += 10)
        printf("| %d | %d | %.0f | %.0f | %.0f | %.0f |\n", steps, steps * 64, beyond(&o, steps, false, 0),
               beyond(&o, steps, false, STORE_STEPS), beyond(&o, steps, true, 0), beyond(&o, steps, true, STORE_STEPS));
    const double stay = product(&o, true), loaded = product(&o, false);
    printf("\na product: %.2f ns, %.2f ns where its operands are loaded from L1 each time\n", stay, loaded);
    free(o.a);
    free(o.b);
    free(o.c);
    return 0;
}
#else
int main(void)
{
    printf("no AMX here\n");
    return 0;
}
#endif
