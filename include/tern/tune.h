/* Tuning: which kernel is the fastest is estimated by a cost model, and measured where somebody asks for it.
 *
 *     tern_context_create(&(struct tern_context_params){.tune = {.level = TERN_TUNE_FAST}});
 *
 * Plans take what was measured when they are compiled, eager ops when they are called. Results are kept in a file, so that each
 * description of an op (dtypes, shapes, strides, attributes, what is fused to it) is measured once for a device, its driver or instruction
 * set, a number of threads and the versions of tern, its kernels and the libraries behind them. One file may hold the results of many
 * devices: it can be shipped beside an application. */
#ifndef TERN_TUNE_H
#define TERN_TUNE_H

#include <tern/base.h>

#ifdef __cplusplus
extern "C" {
#endif

enum tern_tune_level {
    TERN_TUNE_OFF = 0, /* measures nothing */
    TERN_TUNE_FAST,    /* what is a noticeable part of a plan, and of its kernels those that the cost model finds alike */
    TERN_TUNE_FULL     /* everything, and every kernel */
};

struct tern_tune_params {
    enum tern_tune_level level;
    /* File of results; NULL, "": one in the cache folder, which is not read at TERN_TUNE_OFF. A file that is named is used at every level;
     * a relative path leads on from where the process is as the context is made. At the others it is written anew, complete or not at all,
     * after each plan that measured something; results of other devices in it stay. A file that is damaged or holds nothing of this
     * device is ignored with one line of the log; so is one of another kind, or with so many others that it has no room for it, which
     * stays as it is. */
    const char *cache;
    /* Most seconds that measuring takes for one plan, and for all eager ops of a context; what is left over goes by the cost model. The
     * first call of a kernel is not broken off. 0: 5 at TERN_TUNE_FAST, no limit at TERN_TUNE_FULL. */
    double seconds;
    /* Most bytes that measuring takes at once: operands, prepared weights, workspaces. A kernel that wants more is left out. 0: 1 GiB, with
     * a budget half of what is free of it. */
    size_t bytes;
};

#ifdef __cplusplus
}
#endif
#endif
