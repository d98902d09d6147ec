/* What tests ask of the stand-in driver (libcuda-standin) beside the driver API: facts to show, faults to inject, what it has counted
 * and what misuse it has seen. Functions are found by dlsym. */
#ifndef TERN_TESTS_CUDA_STANDIN_H
#define TERN_TESTS_CUDA_STANDIN_H

#include "backends/cuda/driver.h"

#define STANDIN_API __attribute__((visibility("default")))

struct standin_counts {
    uint64_t launches;       /* of kernels, by cuLaunchKernel outside of captures */
    uint64_t graph_launches; /* of graphs, and of the kernels in them */
    uint64_t graph_kernels;
    uint64_t synchronisations; /* waits of the host for a stream or an event */
    uint64_t allocations, frees;
    uint64_t copies_in, copies_out;
    uint64_t bytes_in;
    uint64_t copies_beside; /* of copies_in: those that did not wait for all that was in other streams */
    uint64_t modules;
};

struct standin_facts {
    char name[64];
    int devices, capability, driver; /* 90: sm_90; 12040: CUDA 12.4 */
    size_t memory;                   /* bytes; allocations beyond fail */
    int pools, maps_host, threads, shared;
    int compute; /* 0: kernels are checked and counted, but not run */
    int order;   /* of the items of a group: 0 from the first on, 1 from the last on */
    int eager;   /* 1: copies to the device run as early as they may; 0: as late */
};

STANDIN_API void standin_counts(struct standin_counts *counts);
STANDIN_API void standin_get_facts(struct standin_facts *facts);
STANDIN_API void standin_set_facts(const struct standin_facts *facts);
/* Call number nth from now on (1: the next) of that function gives the error. "kernel": that kernel fails when it runs, which is told
 * by the next call that waits. */
STANDIN_API void standin_fail(const char *function, int nth, CUresult error);
/* How many of those have not come to pass. */
STANDIN_API int standin_pending(void);
/* What was misused so far, and the first of it in words. */
STANDIN_API int standin_misuses(char *text, size_t size);
STANDIN_API void standin_clear_misuses(void);
/* Objects that are still there, and the first of them in words. 0 after a sticky error: the context took them along. */
STANDIN_API int standin_leaks(char *text, size_t size);
/* Forgets counts, faults, misuse and a sticky error; objects that are still there go. */
STANDIN_API void standin_reset(void);

#define STANDIN_FUNCTIONS(F) \
    F(standin_counts)        \
    F(standin_get_facts)     \
    F(standin_set_facts) F(standin_fail) F(standin_pending) F(standin_misuses) F(standin_clear_misuses) F(standin_leaks) F(standin_reset)

/* libnvrtc-standin: the version it claims to be, the architectures it knows (0 behind the last), the result of the next compilation. */
STANDIN_API void standin_nvrtc_set(int version, const int *archs);
STANDIN_API void standin_nvrtc_fail(nvrtcResult error);
STANDIN_API int standin_nvrtc_compilations(void);

#define STANDIN_NVRTC_FUNCTIONS(F) F(standin_nvrtc_set) F(standin_nvrtc_fail) F(standin_nvrtc_compilations)

/* libcublaslt-standin: descriptors that are there, products so far, calls that were wrong so far, the result of the next product. */
STANDIN_API int standin_blas_live(void);
STANDIN_API int standin_blas_products(void);
STANDIN_API int standin_blas_refusals(void);
STANDIN_API void standin_blas_fail(int error);

#define STANDIN_BLAS_FUNCTIONS(F) F(standin_blas_live) F(standin_blas_products) F(standin_blas_refusals) F(standin_blas_fail)

/* libcudnn-standin: descriptors and handles that are there, graphs executed so far; call number nth from now on (1: the next) of a
 * function gives the error; the version it claims to be, and the bytes of workspace that its plans need. */
STANDIN_API int standin_dnn_live(void);
STANDIN_API int standin_dnn_runs(void);
/* Plans of configurations, and plans that were written before. */
STANDIN_API int standin_dnn_plans_made(void);
STANDIN_API int standin_dnn_plans_read(void);
STANDIN_API void standin_dnn_fail(const char *function, int nth, int error);
STANDIN_API int standin_dnn_pending(void);
STANDIN_API void standin_dnn_set(size_t version, int64_t workspace);

#define STANDIN_DNN_FUNCTIONS(F) \
    F(standin_dnn_plans_made)    \
    F(standin_dnn_plans_read) F(standin_dnn_live) F(standin_dnn_runs) F(standin_dnn_fail) F(standin_dnn_pending) F(standin_dnn_set)

#endif
