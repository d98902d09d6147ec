/* Values made from nothing, by their number: full, arange, and the random numbers of PyTorch's CUDA generator (ops/philox.h).
 * Host: VALUES_FULL, VALUES_RANGE (with INTEGER where the dtype is one), VALUES_UNIFORM or VALUES_NORMAL; NDIM 1..6, row-major. */
#define KERNEL_BUFFERS(READ, WRITE) WRITE(0, y)
#define KERNEL_PARAMS TERN_PARAMS_FILL
#define KERNEL_SHARED(ARRAY)

#if defined(VALUES_UNIFORM) || defined(VALUES_NORMAL)
/* Philox 4x32-10 [Salmon 2011]: the first two words for counter (offset, i) and key seed. */
FN UINT2 words(UINT2 seed, UINT2 offset, uint i)
{
    uint c0 = offset.x;
    uint c1 = offset.y;
    uint c2 = i;
    uint c3 = 0u;
    uint k0 = seed.x;
    uint k1 = seed.y;
    for (int turn = 0; turn < 10; turn++) {
        uint high0 = MULHI(0xD2511F53u, c0);
        uint low0 = 0xD2511F53u * c0;
        uint high1 = MULHI(0xCD9E8D57u, c2);
        uint low1 = 0xCD9E8D57u * c2;
        c0 = high1 ^ c1 ^ k0;
        c1 = low1;
        c2 = high0 ^ c3 ^ k1;
        c3 = low0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return MAKE_UINT2(c0, c1);
}
#endif

KERNEL_BEGIN
    for (int i = GROUP_X * GROUP_SIZE_X + LOCAL_X; i < P.n; i += GROUPS_X * GROUP_SIZE_X) {
        int rest = i;
        int to = 0;
        UNROLL for (int d = NDIM - 1; d >= 0; d--) {
            int above = d > 0 ? rest / P.shape[d] : 0;
            to += (rest - above * P.shape[d]) * P.y_stride[d];
            rest = above;
        }
#if defined(VALUES_FULL) && defined(INTEGER)
        STOREI(y, to, P.whole);
#elif defined(VALUES_FULL)
        STORE(y, to, P.value);
#elif defined(VALUES_RANGE) && defined(INTEGER)
        STOREI(y, to, P.whole + i * P.whole_step);
#elif defined(VALUES_RANGE)
        STORE(y, to, FMA(FLOAT(i), P.step, P.value));
#else
        UINT2 w = words(MAKE_UINT2(P.seed_low, P.seed_high), MAKE_UINT2(P.offset_low, P.offset_high), UINT(i));
        float u = FMA(FLOAT(w.x), 2.3283064365386963e-10f, 1.16415321826934814453125e-10f); /* 2^-32, 2^-33 */
#ifdef VALUES_UNIFORM
        STORE(y, to, u == 1.0f ? 0.0f : u);
#else
        float turn = FMA(FLOAT(w.y), 1.46291812e-09f, 7.3145906e-10f); /* 2 pi / 2^32, as rounded in cuRAND */
        STORE(y, to, SQRT(-2.0f * tern_log(u)) * tern_sin(turn));
#endif
#endif
    }
KERNEL_END
