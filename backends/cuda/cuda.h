/* The CUDA backend: the driver API and NVRTC, both opened at run time. CUDA 11.2 is the floor. */
#ifndef TERN_BACKENDS_CUDA_H
#define TERN_BACKENDS_CUDA_H

#include "backends/cuda/driver.h"
#include "backends/gpu/gpu.h"

/* Pinned memory through which writes go: while one slot is copied, the next is filled. */
enum { CUDA_SLOTS = 4, CUDA_SLOT_BYTES = 2 << 20 };
struct cuda_slot {
    void *memory;
    CUevent done;    /* the last copy out of it */
    CUstream stream; /* of all copies out of it since it was empty */
    size_t filled;   /* bytes; small writes lie one behind the other */
    bool used;
};

struct cuda_device {
    struct tern_gpu gpu; /* first */
    struct tern_queue queue;
    struct cuda_api cu;
    struct nvrtc_api nvrtc;
    char nvrtc_name[64];
    int nvrtc_version; /* 12090: 12.9 */
    CUdevice id;
    bool retained; /* the primary context */
    CUcontext context;
    bool gone; /* it could not be entered to close: what is in it goes with it */
    CUstream stream;
    CUstream side;  /* writes beside the launches, and what has to happen at once while `stream` captures */
    CUevent before; /* the last of `stream` before a capture */
    CUevent copied; /* the last write beside the launches */
    bool capturing; /* under gpu.lock, which a capture holds */
    int captured;   /* kernels */
    bool maps_host; /* kernels can read host memory */
    struct cuda_slot slots[CUDA_SLOTS];
    int next_slot;
    bool no_slots;          /* there is no pinned memory */
    CUmemoryPool pool;      /* of stream-ordered memory; NULL: there is none */
    struct cuda_blas *blas; /* NULL: not asked for yet, or no_blas */
    bool no_blas;
    struct cuda_dnn *dnn;                                 /* NULL: not asked for yet */
    const struct tern_kernel *kernels[TERN_OP_COUNT + 5]; /* candidates of libraries, then the texts; NULL */
    char name[128];
    size_t memory;  /* bytes */
    int capability; /* 86: 8.6 */
    int arch;       /* that NVRTC compiles for: the device's, or the highest below it, then as PTX */
    int driver;     /* 12040: the driver knows CUDA 12.4 */
    CUresult lost;  /* atomic: the error after which nothing works any more, or CUDA_SUCCESS */
};

struct cuda_buffer {
    struct tern_gpu_buffer gpu; /* first */
    CUdeviceptr at;
    void *host; /* NULL: it lies on the device */
};

/* How NVIDIA's libraries are opened. They stay when they are closed: unloading a libcuda whose cuInit failed crashes. */
#define CUDA_DLOPEN (RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)

/* Workspace of NVIDIA's libraries begins at such a multiple; what plans give out begins at one of 64 bytes. */
enum { CUDA_WORKSPACE_ALIGNMENT = 256 };
static inline CUdeviceptr cuda_workspace_at(CUdeviceptr at)
{
    return (at + CUDA_WORKSPACE_ALIGNMENT - 1) / CUDA_WORKSPACE_ALIGNMENT * CUDA_WORKSPACE_ALIGNMENT;
}

/* library.c: a library by its name, or path: from where the loader looks, else from where the toolkit lies, which is not always told to it.
 */
void *tern_cuda_dlopen(const char *name);
/* libcuda and its functions; TERN_E_NOT_FOUND with what would help. */
enum tern_status tern_cuda_load(struct cuda_device *d);
void tern_cuda_unload(struct cuda_device *d);
/* Records "cuda: what: name, text": TERN_E_NO_MEMORY for lack of memory, else TERN_E_DEVICE. Errors after which the context is of no
 * use any more are kept in d->lost. */
enum tern_status tern_cuda_fail(struct cuda_device *d, const char *what, CUresult error);
/* Takes the device's lock and makes its context the thread's, so that an application's own comes back behind it. Refused, with nothing
 * to leave, when the device is lost; nothing is recorded when `what` is NULL, where things are given back. */
enum tern_status tern_cuda_enter(struct cuda_device *d, const char *what);
void tern_cuda_leave(struct cuda_device *d);

/* nvrtc.c: opens the first NVRTC that serves device and driver. */
enum tern_status tern_cuda_nvrtc_open(struct cuda_device *d);
void tern_cuda_nvrtc_close(struct cuda_device *d);
/* "--gpu-architecture=sm_86", or compute_86 for PTX; and the language. The number of options. */
enum { CUDA_OPTIONS = 2 };
void tern_cuda_nvrtc_options(int arch, bool binary, char text[40], const char *options[CUDA_OPTIONS]);
/* The image of a source for cuModuleLoadData: a cubin, or PTX with its terminating NUL. NULL with the error recorded; tern_free. */
char *tern_cuda_nvrtc_compile(struct cuda_device *d, const char *source, const char *text, size_t *size);

/* memory.c */
extern const struct tern_gpu_memory_fns tern_cuda_memory_fns;
void tern_cuda_memory_trim(struct tern_device *device);

/* transfer.c: between host and device, in d->stream's order. The device is entered; a read is over when it returns. */
CUresult tern_cuda_copy_in(struct cuda_device *d, CUdeviceptr to, const void *from, size_t size);
/* The same beside d->stream, which waits for it from now on, behind `after`. */
CUresult tern_cuda_copy_in_beside(struct cuda_device *d, CUevent after, CUdeviceptr to, const void *from, size_t size);
CUresult tern_cuda_copy_out(struct cuda_device *d, void *to, CUdeviceptr from, size_t size);
/* Where commands go that are no launches: the stream, or beside it while it captures. */
CUstream tern_cuda_stream(const struct cuda_device *d);
/* Waits for all of tern_cuda_stream. */
CUresult tern_cuda_drain(struct cuda_device *d);
void tern_cuda_slots_free(struct cuda_device *d);

extern const struct tern_queue_fns tern_cuda_queue_fns, tern_cuda_queue_fns_without_capture; /* queue.c */
enum tern_status tern_cuda_capture_begin(struct tern_queue *q);                              /* capture.c */
struct tern_capture *tern_cuda_capture_end(struct tern_queue *q);
enum tern_status tern_cuda_replay(struct tern_queue *q, struct tern_capture *capture);
extern const struct tern_gpu_fns tern_cuda_gpu_fns; /* program.c */
void tern_cuda_blas_close(struct cuda_device *d);   /* blas.c */
void tern_cuda_dnn_close(struct cuda_device *d);    /* dnn.c */

#endif
