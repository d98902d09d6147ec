/* Sum, mean, largest value and its place, largest |value| (divided by 127 with SCALE) over some dimensions. Each output is made by LANES items of a group, which go
 * over its elements together; a group makes GROUP_SIZE_X / LANES outputs.
 * Host: REDUCE_SUM, REDUCE_MEAN, REDUCE_AMAX, REDUCE_ARGMAX or REDUCE_MOST; LANES a power of two; ROW_NDIM and COL_NDIM 1..6; VALUE float,
 * or int with INTEGER defined; WIDE, with REDUCE_MOST: elements lie behind each other, and are loaded by four. */
#define KERNEL_BUFFERS(READ, WRITE) READ(0, x) WRITE(1, y)
#define KERNEL_PARAMS TERN_PARAMS_REDUCE
#if defined(SUBGROUP) && LANES > SUBGROUP
#define KERNEL_SHARED(ARRAY) ARRAY(VALUE, part, REDUCE_ROOM) ARRAY(REST, rests, REDUCE_ROOM)
#elif defined(SUBGROUP) || LANES == 1
#define KERNEL_SHARED(ARRAY)
#else
#define KERNEL_SHARED(ARRAY) ARRAY(VALUE, part, GROUP_SIZE_X) ARRAY(REST, rests, GROUP_SIZE_X)
#endif

/* What goes with a value: the place of a largest one, the rounding error of a sum (it is given back at the end, so that
 * a sum is right where large values cancel [Knuth, TAOCP 2, 4.2.2]). */
#ifdef REDUCE_ARGMAX
#define REST int
#else
#define REST VALUE
#endif

#ifdef INTEGER
#define FETCH(i) LOADI(x, i)
#define PUT(i, v) STOREI(y, i, v)
#define LEAST (-2147483647 - 1)
#define GREATER(a, b) ((a) > (b))
#define ZERO 0
#else
#define FETCH(i) LOAD(x, i)
#define PUT(i, v) STORE(y, i, v)
#define LEAST (-INFINITE)
#define GREATER(a, b) ((a) > (b) || (IS_NAN(a) && !IS_NAN(b))) /* NaN wins */
#define ZERO 0.0f
#endif

#if defined(REDUCE_SUM) || defined(REDUCE_MEAN)
#define FIRST ZERO
#define FIRST_REST ZERO
/* (value, rest) = value + rest + b + b_rest, without loss but for the rests' sum */
#define COMBINE(value, rest, b, b_rest)                            \
    {                                                              \
        EXACT VALUE sum_ = value + (b);                            \
        EXACT VALUE back_ = sum_ - value;                          \
        EXACT VALUE lost_ = (value - (sum_ - back_)) + ((b) - back_); \
        rest += lost_ + (b_rest);                                  \
        value = sum_;                                              \
    }
#define ELEMENT_REST ZERO
#elif defined(REDUCE_ARGMAX)
#define FIRST LEAST
#define FIRST_REST P.cols /* none yet */
#define COMBINE(value, rest, b, b_rest)                                                                                        \
    if ((b_rest) < P.cols && (rest == P.cols || GREATER(b, value) || (!GREATER(value, b) && (b_rest) < rest))) {               \
        value = b;                                                                                                             \
        rest = b_rest;                                                                                                         \
    }
#define ELEMENT_REST j
#elif defined(REDUCE_MOST)
#define FIRST ZERO
#define FIRST_REST ZERO
#define COMBINE(value, rest, b, b_rest) value = MOST(ABS(b), value);
#define ELEMENT_REST ZERO
#else
#define FIRST LEAST
#define FIRST_REST ZERO
#define COMBINE(value, rest, b, b_rest) \
    if (GREATER(b, value))              \
        value = b;
#define ELEMENT_REST ZERO
#endif

KERNEL_BEGIN
    const int lane = ITEM % LANES;
    for (int first = GROUP_X * (GROUP_SIZE_X / LANES); first < P.rows; first += GROUPS_X * (GROUP_SIZE_X / LANES)) {
        int row = first + ITEM / LANES;
        ROW_PLACE(row, from, to)
        VALUE value = FIRST;
        REST tail = FIRST_REST;
#ifdef WIDE
        for (int j = lane * 4; j < P.cols && row < P.rows; j += LANES * 4) {
            VEC4 v = LOAD4(x, from + j);
            value = MOST(ABS(v.x), value);
            value = MOST(ABS(v.y), value);
            value = MOST(ABS(v.z), value);
            value = MOST(ABS(v.w), value);
        }
#else
        for (int j = lane; j < P.cols && row < P.rows; j += LANES) {
            int at = from;
            int rest = j;
            UNROLL for (int d = COL_NDIM - 1; d >= 0; d--) {
                int above = d > 0 ? rest / P.col_shape[d] : 0;
                at += (rest - above * P.col_shape[d]) * P.x_col[d];
                rest = above;
            }
            VALUE v = FETCH(at);
            COMBINE(value, tail, v, ELEMENT_REST)
        }
#endif
#if defined(SUBGROUP)
        UNROLL for (int step = LANES < SUBGROUP ? LANES / 2 : SUBGROUP / 2; step > 0; step /= 2) {
            VALUE other = SHUFFLE_XOR(value, step);
            REST other_tail = SHUFFLE_XOR(tail, step);
            COMBINE(value, tail, other, other_tail)
        }
#if LANES > SUBGROUP
        if (ITEM % SUBGROUP == 0) {
            part[ITEM / SUBGROUP] = value;
            rests[ITEM / SUBGROUP] = tail;
        }
        BARRIER();
        for (int step = 1; step < LANES / SUBGROUP && lane == 0; step++) {
            VALUE other = part[ITEM / SUBGROUP + step];
            REST other_tail = rests[ITEM / SUBGROUP + step];
            COMBINE(value, tail, other, other_tail)
        }
#endif
#elif LANES > 1
        part[ITEM] = value;
        rests[ITEM] = tail;
        for (int step = LANES / 2; step > 0; step /= 2) {
            BARRIER();
            if (lane < step) {
                VALUE other = part[ITEM + step];
                REST other_tail = rests[ITEM + step];
                COMBINE(value, tail, other, other_tail)
                part[ITEM] = value;
                rests[ITEM] = tail;
            }
        }
#endif
        if (lane == 0 && row < P.rows) {
#if defined(REDUCE_ARGMAX)
            STOREI(y, to, tail);
#elif defined(REDUCE_SUM) || defined(REDUCE_MEAN)
            value += IS_NAN(tail) ? 0.0f : tail; /* an infinite sum has no error */
#ifdef REDUCE_MEAN
            value = value / FLOAT(P.cols);
#endif
            PUT(to, value);
#elif defined(SCALE)
            PUT(to, tern_quotient(value, 127.0f));
#else
            PUT(to, value);
#endif
        }
#if LANES > 1 && (!defined(SUBGROUP) || LANES > SUBGROUP)
        BARRIER(); /* before the arrays are filled again */
#endif
    }
KERNEL_END
