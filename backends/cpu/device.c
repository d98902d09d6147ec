/* The CPU device: finds out what the processor is and picks the level of its kernels. */
#include <cpuinfo.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "backends/cpu/cpu.h"
#include "backends/queue.h"
#include "core/registry.h"

/* Set before anything else runs, and never again. */
static pid_t loaded_by;
__attribute__((constructor)) static void remember_process(void) { loaded_by = getpid(); }

bool tern_cpu_is_child(void) { return getpid() != loaded_by; }

static void device_destroy(struct tern_device *device)
{
    struct cpu_device *d = (struct cpu_device *)device;
    tern_cpu_memory_trim(device);
    tern_cpu_openblas_close(d);
    tern_cpu_onednn_close(d);
    pthread_mutex_destroy(&d->lock);
    pthread_mutex_destroy(&d->peak_lock);
    pthread_mutex_destroy(&d->library_lock);
    tern_free(device->ctx, d);
}

static void describe(const struct tern_device *device, char *out, size_t size)
{
    const struct cpu_device *d = (const struct cpu_device *)device;
    const struct cpuinfo_package *p = cpuinfo_initialize() && cpuinfo_get_packages_count() ? cpuinfo_get_package(0) : NULL;
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    snprintf(out, size, "%s, %d threads, %.1f GiB memory, L2 %zu KiB, kernels: %s", p && p->name[0] ? p->name : "processor",
             tern_thread_count(device->ctx), (double)pages * (double)page / (1 << 30), d->l2 >> 10, d->level->name);
}

/* Family, model and stepping as the processor tells them: names of virtual machines hide which it is. */
static unsigned version_of(const struct cpuinfo_core *c)
{
#if defined(__x86_64__)
    return c->cpuid;
#elif defined(__aarch64__)
    return c->midr;
#else
    return 0;
#endif
}

/* How much memory there is does not count. */
static void identify(const struct tern_device *device, char *out, size_t size)
{
    const struct cpu_device *d = (const struct cpu_device *)device;
    const struct cpuinfo_package *p = cpuinfo_initialize() && cpuinfo_get_packages_count() ? cpuinfo_get_package(0) : NULL;
    const struct cpuinfo_core *c = p ? cpuinfo_get_core(0) : NULL;
    const struct cpuinfo_cache *l3 = p && cpuinfo_get_l3_caches_count() ? cpuinfo_get_l3_cache(0) : NULL;
    snprintf(out, size, "%s, core %x, version %x, L1 %zu KiB, L2 %zu KiB, L3 %zu KiB", p && p->name[0] ? p->name : "processor",
             c ? (unsigned)c->uarch : 0, c ? version_of(c) : 0, d->l1 >> 10, d->l2 >> 10, l3 ? (size_t)l3->size >> 10 : 0);
}

static const struct tern_device_fns device_fns = {
    .destroy = device_destroy,
    .describe = describe,
    .identify = identify,
    .buffer_create = tern_cpu_buffer_create,
    .trim = tern_cpu_memory_trim,
    .peak = tern_cpu_peak,
};

/* TERN_CPU_LEVEL names none of the levels that this build has. */
static void fail_unknown(struct tern_context *ctx, const char *limit)
{
    const struct tern_cpu_level *const *l = tern_cpu_levels();
    char names[128] = "";
    for (int i = 0; l[i]; i++) {
        size_t used = strlen(names);
        snprintf(names + used, sizeof(names) - used, "%s%s", !i ? "" : l[i + 1] ? ", " : " or ", l[i]->name);
    }
    tern_fail(ctx, TERN_E_INVALID, "TERN_CPU_LEVEL: this build has no \"%s\"; expected %s", limit, names);
}

/* Whether a level is faster than the one below it. Intel's vdpbf16ps does half as much in a cycle as its f32 FMA: a UNet step of SD 1.5 in
 * bf16 took 1.3 to 1.7 times as long by it as in f32 with casts (Xeon, family 6 model 143). AMD's does twice as much. */
static bool is_faster(const struct tern_cpu_level *l)
{
    const struct cpuinfo_core *c = cpuinfo_initialize() && cpuinfo_get_cores_count() ? cpuinfo_get_core(0) : NULL;
    return !l->emulated && (strcmp(l->name, "avx512bf16") != 0 || !c || c->vendor != cpuinfo_vendor_intel);
}

/* Whether the paths of data are half as wide as vectors of 512 bits, as a Zen 4's: AMD's processors tell (cpuid, leaf 8000001A, the bits
 * FP256 and FP512), others say nothing there. */
static bool computes_halves(void)
{
#if defined(__x86_64__)
    unsigned a = 0, b, c, d;
    return __get_cpuid(0x8000001a, &a, &b, &c, &d) && (a & 0xc) == 0x4;
#else
    return false;
#endif
}

/* The best level that the processor has and TERN_CPU_LEVEL allows; the one that it names in any case. */
static const struct tern_cpu_level *choose_level(struct tern_context *ctx)
{
    const char *limit = getenv("TERN_CPU_LEVEL");
    const struct tern_cpu_level *best = NULL;
    bool known = !limit || !limit[0];
    for (const struct tern_cpu_level *const *l = tern_cpu_levels(); *l; l++) {
        bool named = limit && !strcmp(limit, (*l)->name);
        if ((*l)->available() && (named || is_faster(*l)))
            best = *l;
        if (named) {
            known = true;
            break;
        }
    }
    if (!known) {
        fail_unknown(ctx, limit);
        return NULL;
    }
    return best;
}

static const struct tern_kernel *const *kernels_of(const struct tern_cpu_level *level)
{
    if (level->bf16x3.dot.step)
        return tern_cpu_kernels_bf16x3;
    return level->attention_i8.scratch ? tern_cpu_kernels_i8_attention : level->bf16.dot.step ? tern_cpu_kernels_bf16 : tern_cpu_kernels;
}

static struct tern_device *create(struct tern_context *ctx, int ordinal)
{
    if (ordinal) {
        tern_fail(ctx, TERN_E_NOT_FOUND, "device \"cpu:%d\": there is only cpu:0", ordinal);
        return NULL;
    }
    bool known = cpuinfo_initialize(); /* not without /proc: its functions would then end the process */
    const struct tern_cpu_level *level = choose_level(ctx);
    struct cpu_device *d = level ? tern_calloc(ctx, 1, sizeof(*d)) : NULL;
    if (!d)
        return NULL;
    const struct cpuinfo_cache *l1 = known && cpuinfo_get_l1d_caches_count() ? cpuinfo_get_l1d_cache(0) : NULL;
    const struct cpuinfo_cache *l2 = known && cpuinfo_get_l2_caches_count() ? cpuinfo_get_l2_cache(0) : NULL;
    const struct cpuinfo_cache *l3 = known && cpuinfo_get_l3_caches_count() ? cpuinfo_get_l3_cache(0) : NULL;
    d->level = level;
    d->halves = computes_halves();
    d->l1 = l1 && l1->size ? l1->size : 32u << 10;
    d->l2 = l2 && l2->size ? l2->size : 512u << 10;
    pthread_mutex_init(&d->lock, NULL);
    pthread_mutex_init(&d->peak_lock, NULL);
    pthread_mutex_init(&d->library_lock, NULL);
    d->base = (struct tern_device){
        .fns = &device_fns,
        .ctx = ctx,
        .name = "cpu",
        .level = level->name,
        .caps = {.host_memory = true,
                 .prefers_channels_last = true,
                 .computes = true,
                 .in_place = true,
                 .cache = l3 && l3->size ? l3->size : d->l2,
                 .fast_dtype = level->bf16.dot.step ? TERN_BF16 : TERN_F32},
        .kernels = kernels_of(level),
        .queue = &d->queue,
    };
    d->queue = (struct tern_queue){.fns = &tern_queue_at_once, .device = &d->base};
    return &d->base;
}

extern const struct tern_backend tern_backend_cpu;
const struct tern_backend tern_backend_cpu = {"cpu", create};
