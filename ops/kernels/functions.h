/* Functions of values, for expressions and posts. Behind portable.h. First those that GLSL lacks, or leaves too inexact for
 * what samplers and timestep embeddings need of them (sin: 2^-11); host C takes the same, so that they are tested there. */

#ifdef TERN_OWN_FUNCTIONS
/* Coefficients: Cephes, single precision (Moshier 1989); erf: minimax fit (Juffa). */
FN float tern_exp(float x)
{
    float t = x > -104.0f ? (x < 89.0f ? x : 89.0f) : -104.0f;
    float n = ROUND(t * 1.44269504088896341f);
    float r = t - n * 0.693359375f + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    int e = INT(n) + 254, half_e = e / 2; /* 2^n in two factors, so that the ends of the range are exact */
    p = p * AS_FLOAT(UINT(half_e) << 23) * AS_FLOAT(UINT(e - half_e) << 23);
    return IS_NAN(x) ? x : p;
}

/* x = m 2^e with m in sqrt(1/2) .. sqrt(2): e, and log(m) less m - 1 */
FN int tern_log_exponent(float x) { return INT((AS_UINT(x) - 0x3f3504f3u + 0x3f800000u) >> 23) - 127; }

FN float tern_log_rest(float m)
{
    float z = m * m;
    float p = 7.0376836292e-2f;
    p = p * m - 1.1514610310e-1f;
    p = p * m + 1.1676998740e-1f;
    p = p * m - 1.2420140846e-1f;
    p = p * m + 1.4249322787e-1f;
    p = p * m - 1.6668057665e-1f;
    p = p * m + 2.0000714765e-1f;
    p = p * m - 2.4999993993e-1f;
    p = p * m + 3.3333331174e-1f;
    return p * m * z - 0.5f * z;
}

FN float tern_log(float x)
{
    float extra = 0.0f;
    if (IS_NAN(x) || x < 0.0f)
        return NO_NUMBER;
    if (x == 0.0f)
        return -INFINITE;
    if (AS_UINT(x) == 0x7f800000u)
        return x;
    if (x < 1.17549435e-38f) { /* denormal */
        x *= 8388608.0f;
        extra = 23.0f;
    }
    int e = tern_log_exponent(x);
    float m = AS_FLOAT(AS_UINT(x) - (UINT(e) << 23)) - 1.0f, n = FLOAT(e) - extra;
    float rest = tern_log_rest(m) - 2.12194440e-4f * n;
    return m + rest + 0.693359375f * n;
}

/* Word i, in 0 .. 3, of four that follow each other */
FN uint tern_word(int i, uint a, uint b, uint c, uint d) { return i < 2 ? (i == 0 ? a : b) : (i == 2 ? c : d); }

/* The same as tern_quarter for |x| in 2 .. infinity: of 2 x / pi no more is computed than its two lowest whole bits and 62 behind the
 * point (Payne and Hanek 1983). The constants are the first bits of 2 / pi. */
FN UINT2 tern_quarter_of_large(float x)
{
    uint m = AS_UINT(x) << 8 | 0x80000000u, e = (AS_UINT(x) >> 23 & 255u) - 128u, up = e & 31u; /* |x| = m 2^(e - 30) */
    int i = INT(e >> 5);
    uint w0 = tern_word(i, 0u, 0xa2f9836eu, 0x4e441529u, 0xfc2757d1u);
    uint w1 = tern_word(i, 0xa2f9836eu, 0x4e441529u, 0xfc2757d1u, 0xf534ddc0u);
    uint w2 = tern_word(i, 0x4e441529u, 0xfc2757d1u, 0xf534ddc0u, 0xdb629599u);
    uint w3 = tern_word(i, 0xfc2757d1u, 0xf534ddc0u, 0xdb629599u, 0x3c439041u);
    uint first = w0 << up | w1 >> 1 >> (31u - up), second = w1 << up | w2 >> 1 >> (31u - up), third = w2 << up | w3 >> 1 >> (31u - up);
    uint carry = MULHI(m, third), low = m * second + carry, high = m * first + MULHI(m, second) + (low < carry ? 1u : 0u);
    uint n = ((high >> 29) + 1u) >> 1; /* to nearest: the rest is in -1/2 .. 1/2 */
    high = high << 2 | low >> 30;
    float rest = (FLOAT(INT(high)) * 2.3283064365386963e-10f + FLOAT(low << 2) * 5.421010862427522e-20f) * 1.57079632679489662f;
    return x < 0.0f ? MAKE_UINT2(AS_UINT(-rest), 0u - n) : MAKE_UINT2(AS_UINT(rest), n);
}

/* n = round(2 x / pi), as a second part, and the bits of x - n pi / 2, in four steps of few bits where those are enough */
FN UINT2 tern_quarter(float x)
{
    float n = ROUND(x * 0.636619772367581343f);
    float rest = x - n * 1.5703125f - n * 4.837512969970703125e-4f - n * 7.549533620476722717e-8f - n * 2.5632829192545614e-12f;
    if (!(ABS(x) < 8192.0f))
        return tern_quarter_of_large(x);
    return MAKE_UINT2(AS_UINT(rest), UINT(INT(n)));
}

FN float tern_sine(float r, int quadrant)
{
    float z = r * r;
    float s = ((-1.9515295891e-4f * z + 8.3321608736e-3f) * z - 1.6666654611e-1f) * z * r + r;
    float c = ((2.443315711809948e-5f * z - 1.388731625493765e-3f) * z + 4.166664568298827e-2f) * z * z - 0.5f * z + 1.0f;
    float v = (quadrant & 1) != 0 ? c : s;
    return (quadrant & 2) != 0 ? -v : v;
}

FN float tern_sin(float x)
{
    UINT2 q = tern_quarter(x);
    return ABS(x) < INFINITE ? tern_sine(AS_FLOAT(q.x), INT(q.y)) : NO_NUMBER;
}

FN float tern_cos(float x)
{
    UINT2 q = tern_quarter(x);
    return ABS(x) < INFINITE ? tern_sine(AS_FLOAT(q.x), INT(q.y) + 1) : NO_NUMBER;
}

FN float tern_erf(float x)
{
    float t = ABS(x), s = x * x;
    if (t <= 0.927734375f) {
        float near = s * -5.96761703e-4f + 4.99119423e-3f;
        near = near * s - 2.67681349e-2f;
        near = near * s + 1.12819925e-1f;
        near = near * s - 3.76125336e-1f;
        near = near * s + 1.28379166e-1f;
        return near * x + x;
    }
    float far = t * -1.72853470e-5f + 3.83197126e-4f;
    far = far * s + (t * -3.88396438e-3f + 2.42546219e-2f);
    far = far * t - 1.06777877e-1f;
    far = far * t - 6.34846687e-1f;
    far = far * t - 1.28717512e-1f;
    far = far * t - t;
    far = IS_NAN(x) ? x : t > 4.0f ? 1.0f : 1.0f - tern_exp(far);
    return x < 0.0f ? -far : far;
}

/* |x|^y for finite x other than 0: 2^(y log2 x), the whole part of the exponent apart from the rest */
FN float tern_pow_positive(float x, float y)
{
    float scale = 0.0f;
    if (x < 1.17549435e-38f) {
        x *= 8388608.0f;
        scale = -23.0f;
    }
    int e = tern_log_exponent(x);
    float m = AS_FLOAT(AS_UINT(x) - (UINT(e) << 23)) - 1.0f, n = FLOAT(e) + scale, rest = tern_log_rest(m);
    float log2_m = rest * 1.44269504f + m * 0.44269504f + m, whole = y * n, error = FMA(y, n, -whole);
    if (!(ABS(whole + y * log2_m) < 1000.0f))
        return whole + y * log2_m > 0.0f ? INFINITE : 0.0f;
    float part = ROUND(whole), t = whole - part + error + y * log2_m, up = ROUND(t);
    float fraction = tern_exp((t - up) * 0.693147180559945309f), k = part + up;
    k = k > 300.0f ? 300.0f : k < -300.0f ? -300.0f : k;
    int a = INT(k) / 3, b = INT(k) - 2 * a; /* three factors: the exponent may leave the range */
    float third = AS_FLOAT(UINT(a + 127) << 23);
    return fraction * third * third * AS_FLOAT(UINT(b + 127) << 23);
}

FN float tern_pow(float x, float y)
{
    float t = ABS(x), ay = ABS(y);
    bool whole = ay >= 8388608.0f || FLOOR(y) == y, odd = whole && ay < 16777216.0f && FLOOR(ay * 0.5f) * 2.0f != ay;
    float v;
    if (y == 0.0f || x == 1.0f)
        return 1.0f;
    if (IS_NAN(x) || IS_NAN(y))
        return NO_NUMBER;
    if (ay == INFINITE) {
        if (t == 1.0f)
            return 1.0f;
        return (t > 1.0f) == (y > 0.0f) ? INFINITE : 0.0f;
    }
    if (t == 0.0f || t == INFINITE)
        v = (t == 0.0f) == (y > 0.0f) ? 0.0f : INFINITE;
    else if (x < 0.0f && !whole)
        return NO_NUMBER;
    else
        v = tern_pow_positive(t, y);
    return odd && (AS_UINT(x) >> 31) != 0u ? -v : v;
}

/* To nearest even; past the largest half comes infinity. */
FN uint tern_f16_of_f32(float v)
{
    uint bits = AS_UINT(v), sign = bits >> 16 & 0x8000u, rest = bits & 0x7fffffffu;
    if (rest > 0x7f800000u)
        return sign | 0x7e00u;
    if (rest >= 0x477ff000u) /* 65520: half way to what would be the next one */
        return sign | 0x7c00u;
    if (rest < 0x38800000u) { /* a denormal half: 2^-24 is the unit, which the sum's last bit becomes */
        float sum = AS_FLOAT(rest) + 0.5f;
        return sign | (AS_UINT(sum) - 0x3f000000u);
    }
    return sign | ((rest + 0xfffu + (rest >> 13 & 1u)) >> 13) - 0x1c000u;
}
#endif

#ifndef tern_tanh /* OpenCL's may miss 1 at infinity, and gelu's NaN with it */
FN float tern_tanh(float x)
{
    float t = ABS(x), z = x * x;
    float p = -5.70498872745e-3f;
    p = p * z + 2.06390887954e-2f;
    p = p * z - 5.37397155531e-2f;
    p = p * z + 1.33314422036e-1f;
    p = p * z - 3.33332819422e-1f;
    if (t < 0.625f)
        return p * z * x + x;
    float far = 1.0f - 2.0f / (tern_exp(t + t) + 1.0f);
    return x < 0.0f ? -far : far;
}
#endif

/* x / y for y >= 1, to two units in the last place, as the own division of GLSL and OpenCL has it. */
#ifndef tern_over
#define tern_over(x, y) ((x) / (y))
#endif

/* ---- one row an op of ops.def, in f32; comparisons give 1 or 0 ---- */

FN float tern_neg(float x) { return -x; }
FN float tern_abs(float x) { return ABS(x); }
FN float tern_sqrt(float x) { return SQRT(x); }
FN float tern_rsqrt(float x) { return RSQRT(x); }
FN float tern_reciprocal(float x) { return 1.0f / x; }
FN float tern_square(float x) { return x * x; }
FN float tern_floor(float x) { return FLOOR(x); }
FN float tern_ceil(float x) { return CEIL(x); }
FN float tern_round(float x) { return ROUND(x); }
FN float tern_sigmoid(float x) { return tern_over(1.0f, 1.0f + tern_exp(-x)); }
FN float tern_relu(float x) { return x < 0.0f ? 0.0f : x; }
FN float tern_silu(float x) { return tern_over(x, 1.0f + tern_exp(-x)); }
FN float tern_quick_gelu(float x) { return tern_over(x, 1.0f + tern_exp(-1.702f * x)); }
FN float tern_gelu(float x) { return 0.5f * x * (1.0f + tern_erf(x * 0.70710678118654752f)); }
FN float tern_gelu_tanh(float x) { return 0.5f * x * (1.0f + tern_tanh(0.79788456080286536f * (x + 0.044715f * x * x * x))); }
FN float tern_logical_not(float x) { return x == 0.0f ? 1.0f : 0.0f; }
FN float tern_add_scalar(float x, float y) { return x + y; }
FN float tern_mul_scalar(float x, float y) { return x * y; }
FN float tern_add(float x, float y) { return x + y; }
FN float tern_sub(float x, float y) { return x - y; }
FN float tern_mul(float x, float y) { return x * y; }
FN float tern_div(float x, float y) { return x / y; }
FN float tern_maximum(float x, float y) { return IS_NAN(x) || x > y ? x : y; } /* NaN wins */
FN float tern_minimum(float x, float y) { return IS_NAN(x) || x < y ? x : y; }
FN float tern_eq(float x, float y) { return x == y ? 1.0f : 0.0f; }
FN float tern_ne(float x, float y) { return x == y ? 0.0f : 1.0f; }
FN float tern_lt(float x, float y) { return x < y ? 1.0f : 0.0f; }
FN float tern_le(float x, float y) { return x <= y ? 1.0f : 0.0f; }
FN float tern_gt(float x, float y) { return x > y ? 1.0f : 0.0f; }
FN float tern_ge(float x, float y) { return x >= y ? 1.0f : 0.0f; }
FN float tern_logical_and(float x, float y) { return x != 0.0f && y != 0.0f ? 1.0f : 0.0f; }
FN float tern_logical_or(float x, float y) { return x != 0.0f || y != 0.0f ? 1.0f : 0.0f; }
FN float tern_where(float condition, float x, float y) { return condition != 0.0f ? x : y; }

/* high wins where they cross; NaN in any of them gives NaN */
FN float tern_clamp(float x, float low, float high)
{
    if (IS_NAN(x) || IS_NAN(low) || IS_NAN(high))
        return NO_NUMBER;
    float v = x < low ? low : x;
    return v > high ? high : v;
}

/* PyTorch takes the root where the exponent is one half: -inf gives NaN, -0 stays. */
FN float tern_pow_scalar(float x, float exponent)
{
    if (exponent == 0.5f)
        return SQRT(x);
    if (exponent == -0.5f)
        return RSQRT(x);
    return tern_pow(x, exponent);
}

/* x / y rounded to nearest, which the own division of GLSL and OpenCL need not be. What is left of x, by halves of q and y, whose products
 * are exact [Dekker 1971]: FMA may round its product, as Mesa's lavapipe does. A compiler that makes an FMA of `x - product` takes what was
 * lost away twice. */
#ifndef tern_quotient
FN float tern_high_half(float x) { return AS_FLOAT(AS_UINT(x) & 0xfffff000u); }
FN float tern_quotient(float x, float y)
{
#ifdef __OPENCL_VERSION__
#pragma OPENCL FP_CONTRACT OFF
#endif
    EXACT float q = x / y;
    EXACT float product = q * y;
    EXACT float q_high = tern_high_half(q);
    EXACT float y_high = tern_high_half(y);
    EXACT float q_low = q - q_high;
    EXACT float y_low = y - y_high;
    EXACT float lost = q_high * y_high - product;
    lost += q_high * y_low;
    lost += q_low * y_high;
    lost += q_low * y_low;
    EXACT float rest = x - product;
    rest -= lost;
    EXACT float better = q + rest / y;
    return (AS_UINT(better) & 0x7fffffffu) < 0x7f800000u ? better : q;
}
#endif

/* int8 by the rules of ops/quantize.c. */
FN float tern_quantize(float x, float scale)
{
    float q = tern_quotient(x, scale);
    if (!(scale > 0.0f) || IS_NAN(scale) || IS_NAN(q))
        return 0.0f;
    return q > 127.0f ? 127.0f : q < -127.0f ? -127.0f : ROUND(q);
}

/* As ops/weight_only.h has them. */
FN float tern_weight_scale(float scale)
{
    float size = ABS(scale);
    if (IS_NAN(scale) || size == INFINITE)
        return NO_NUMBER;
    return size < AS_FLOAT(0x00800000u) ? 0.0f : scale;
}
FN float tern_weight_value(float x, float scale, float least, float most)
{
    float q = tern_quotient(x, scale);
    if (scale == 0.0f || IS_NAN(scale))
        return 0.0f;
    return q > most ? most : q < least ? least : ROUND(q);
}

/* The same for integers of at most 32 bits; sums and products wrap. */
FN int tern_wrap(uint x) { return INT(x); }
FN int terni_neg(int x) { return tern_wrap(0u - UINT(x)); }
FN int terni_abs(int x) { return x < 0 ? terni_neg(x) : x; }
FN int terni_square(int x) { return tern_wrap(UINT(x) * UINT(x)); }
FN int terni_relu(int x) { return x < 0 ? 0 : x; }
FN int terni_logical_not(int x) { return x == 0 ? 1 : 0; }
FN int terni_add(int x, int y) { return tern_wrap(UINT(x) + UINT(y)); }
FN int terni_sub(int x, int y) { return tern_wrap(UINT(x) - UINT(y)); }
FN int terni_mul(int x, int y) { return tern_wrap(UINT(x) * UINT(y)); }
FN int terni_maximum(int x, int y) { return x > y ? x : y; }
FN int terni_minimum(int x, int y) { return x < y ? x : y; }
FN int terni_eq(int x, int y) { return x == y ? 1 : 0; }
FN int terni_ne(int x, int y) { return x == y ? 0 : 1; }
FN int terni_lt(int x, int y) { return x < y ? 1 : 0; }
FN int terni_le(int x, int y) { return x <= y ? 1 : 0; }
FN int terni_gt(int x, int y) { return x > y ? 1 : 0; }
FN int terni_ge(int x, int y) { return x >= y ? 1 : 0; }
FN int terni_logical_and(int x, int y) { return x != 0 && y != 0 ? 1 : 0; }
FN int terni_logical_or(int x, int y) { return x != 0 || y != 0 ? 1 : 0; }
FN int terni_add_scalar(int x, int y) { return terni_add(x, y); }
FN int terni_mul_scalar(int x, int y) { return terni_mul(x, y); }
FN int terni_clamp(int x, int low, int high)
{
    int v = x < low ? low : x;
    return v > high ? high : v;
}

/* exponent >= 0 */
FN int terni_pow_scalar(int x, int exponent)
{
    uint result = 1u, base = UINT(x);
    for (int e = exponent; e > 0; e >>= 1) {
        result *= (e & 1) != 0 ? base : 1u;
        base *= base;
    }
    return tern_wrap(result);
}
FN int terni_where(int condition, int x, int y) { return condition != 0 ? x : y; }
