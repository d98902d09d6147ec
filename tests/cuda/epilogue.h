/* What stands behind a CUDA source that is compiled by the host's C++ compiler: its kernel's signature, and the call of it. */
extern "C" __attribute__((weak, visibility("hidden"))) char __start_standin_shared[], __stop_standin_shared[];

template <class T> struct standin_kind {
    static const int kind = STANDIN_VALUE;
    static const unsigned align = 0;
};
template <class T> struct standin_kind<T *> {
    static const int kind = STANDIN_WRITES;
    static const unsigned align = alignof(T);
};
template <class T> struct standin_kind<const T *> {
    static const int kind = STANDIN_READS;
    static const unsigned align = alignof(T);
};
template <unsigned... I> struct standin_indices {
};
template <unsigned N, unsigned... I> struct standin_upto : standin_upto<N - 1, N - 1, I...> {
};
template <unsigned... I> struct standin_upto<0, I...> {
    typedef standin_indices<I...> list;
};

template <class... A> static standin_kernel standin_describe(void (*)(A...))
{
    return {sizeof...(A), {{sizeof(A), standin_kind<A>::kind, standin_kind<A>::align}...}, standin_bounds};
}
template <class... A, unsigned... I> static void standin_call(void (*f)(A...), void **arguments, standin_indices<I...>)
{
    f(*(A *)arguments[I]...);
}
template <class... A> static void standin_apply(void (*f)(A...), void **arguments)
{
    standin_call(f, arguments, typename standin_upto<sizeof...(A)>::list());
}
static void standin_invoke(void **arguments) { standin_apply(tern_kernel, arguments); }

extern "C" __attribute__((visibility("default"))) void standin_kernel_facts(standin_kernel *k);
extern "C" void standin_kernel_facts(standin_kernel *k)
{
    *k = standin_describe(tern_kernel);
    k->barriers = __COUNTER__;
    k->arch = STANDIN_ARCH;
    k->shared = __start_standin_shared;
    k->shared_end = __stop_standin_shared;
    k->invoke = standin_invoke;
    k->now = &standin_now;
    k->barrier = &standin_barrier;
    k->exchange = &standin_exchange;
    k->matrix = &standin_matrix;
}
