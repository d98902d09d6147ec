/* Backends for tests of lists and "auto": each is the CPU with a queue of its own. With the list of backends, in place of that in
 * backends/backends.c. slow takes its time and computes nothing, quick does not even that, soft says that it is the processor, absent has
 * no driver, lost fails at launch number $TERN_TEST_LOST_AT. With $TERN_TEST_REFUSED the first slow device is refused, and there is a
 * second. With $TERN_TEST_INTERRUPT its first launch is one at which the process is interrupted, with $TERN_TEST_NO_ROOM it has no memory. */
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "choose_backends.h"
#include "core/context.h"
#include "core/registry.h"
#include "ops/kernel.h"

extern const struct tern_backend tern_backend_cpu, tern_backend_null;

/* As far as tests look: how often a device of that kind was launched. */
int choose_launches[CHOOSE_KINDS];

struct kind {
    struct tern_queue_fns fns;
    const struct tern_queue_fns *cpu;
};
static struct kind kinds[CHOOSE_KINDS];

static enum tern_status pass_on(enum choose_kind k, struct tern_queue *q, const struct tern_kernel *kernel,
                                const struct tern_kernel_args *a)
{
    choose_launches[k]++;
    return kinds[k].cpu->launch(q, kernel, a);
}

static enum tern_status launch_slow(struct tern_queue *q, const struct tern_kernel *k, const struct tern_kernel_args *a)
{
    if (!choose_launches[CHOOSE_SLOW]++ && getenv("TERN_TEST_INTERRUPT"))
        raise(SIGINT);
    if (getenv("TERN_TEST_NO_ROOM"))
        return tern_fail(a->ctx, TERN_E_NO_MEMORY, "slow: no room");
    nanosleep(&(struct timespec){0, 20000000}, NULL);
    return TERN_OK;
}

static enum tern_status launch_quick(struct tern_queue *q, const struct tern_kernel *k, const struct tern_kernel_args *a)
{
    choose_launches[CHOOSE_QUICK]++;
    return TERN_OK;
}

static enum tern_status launch_soft(struct tern_queue *q, const struct tern_kernel *k, const struct tern_kernel_args *a)
{
    return pass_on(CHOOSE_SOFT, q, k, a);
}

static enum tern_status launch_lost(struct tern_queue *q, const struct tern_kernel *k, const struct tern_kernel_args *a)
{
    const char *at = getenv("TERN_TEST_LOST_AT");
    if (at && choose_launches[CHOOSE_LOST] + 1 >= atoi(at))
        return tern_fail(a->ctx, TERN_E_DEVICE, "lost: the device fell off the bus");
    return pass_on(CHOOSE_LOST, q, k, a);
}

static struct tern_device *create(struct tern_context *ctx, int ordinal, enum choose_kind k, const char *name,
                                  enum tern_status (*launch)(struct tern_queue *, const struct tern_kernel *,
                                                             const struct tern_kernel_args *))
{
    const int refused = k == CHOOSE_SLOW && getenv("TERN_TEST_REFUSED") != NULL;
    if (ordinal < refused || ordinal > refused) {
        tern_fail(ctx, ordinal ? TERN_E_NOT_FOUND : TERN_E_UNSUPPORTED, "%s: device %d was asked for, there is %d", name, ordinal,
                  refused + 1);
        return NULL;
    }
    struct tern_device *d = tern_backend_cpu.create(ctx, 0);
    if (!d)
        return NULL;
    kinds[k].cpu = d->queue->fns;
    kinds[k].fns = *d->queue->fns;
    kinds[k].fns.launch = launch;
    d->queue->fns = &kinds[k].fns;
    d->name = name;
    d->caps.software = k == CHOOSE_SOFT;
    return d;
}

#define KIND(name, number)                                                          \
    static struct tern_device *create_##name(struct tern_context *ctx, int ordinal) \
    {                                                                               \
        return create(ctx, ordinal, number, #name, launch_##name);                  \
    }                                                                               \
    static const struct tern_backend name = {#name, create_##name};
KIND(slow, CHOOSE_SLOW)
KIND(quick, CHOOSE_QUICK)
KIND(soft, CHOOSE_SOFT)
KIND(lost, CHOOSE_LOST)

static struct tern_device *create_absent(struct tern_context *ctx, int ordinal)
{
    tern_fail(ctx, TERN_E_NOT_FOUND, "absent: libabsent.so.1 is not there");
    return NULL;
}
static const struct tern_backend absent = {"absent", create_absent};

const struct tern_backend *const tern_backends[] = {&tern_backend_cpu, &slow, &absent, &quick, &soft, &lost, &tern_backend_null, NULL};
