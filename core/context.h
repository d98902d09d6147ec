/* The inside of a context. */
#ifndef TERN_CORE_CONTEXT_H
#define TERN_CORE_CONTEXT_H

#include <pthread.h>
#include <tern/context.h>

#include "core/hal.h"
#include "core/memory.h"
#include "core/pages.h"
#include "core/status.h"
#include "core/threads.h"

struct tern_scope_stack {
    tern_tensor **tensors; /* all open scopes, outermost first */
    int count, capacity;
    int *starts; /* first tensor of each scope that has its own: the outermost ones */
    int n_starts, starts_capacity;
    int depth; /* begun and not ended; more than n_starts while there is no memory */
    int floor; /* of them, those that are not the function's that is traced to end */
};

struct tern_context {
    int refs; /* atomic */
    struct tern_context_params params;
    char *cache_dir, *tune_cache; /* copies of params.cache_dir, params.tune.cache */

    pthread_mutex_t lock; /* error, prepared forms of tensors, list of mappings */
    enum tern_status status;
    pthread_t failed; /* the thread whose error that is */
    char error[TERN_ERROR_SIZE];

    const char *unlimited; /* atomic; the thread that has lifted params.budget for a while, for all; NULL: it holds */
    size_t used, peak;     /* atomic, bytes */
    size_t most;           /* likewise: the peak on the host that nobody resets */
    struct tern_pages pages;
    uint64_t allocations; /* atomic */
    uint64_t buffers;     /* atomic; made so far */
    uint64_t bindings;    /* likewise */
    unsigned recordings;  /* of graphs, begun so far */
    unsigned recording;   /* the number of the one that symbols are of now */

    struct tern_team *team;
    struct tern_threads threads;
    struct tern_mapping *mappings; /* core/files.c; they hold the context */

    struct tern_device *host;   /* always the CPU */
    struct tern_device *own;    /* the default one; may be == host */
    struct tern_device *device; /* where calls go now: own, or another (tern_device_go) */
    char *chosen, *behind;      /* by name: the one that was taken, of a list those behind it or NULL */

    struct tern_scope_stack scopes;
    const char *scopes_of; /* atomic: the thread that began the innermost scope, as tern_this_thread has it; NULL: none is open */
    const char *asked;     /* atomic; the thread that is in params.cancel, whose own calls are not asked again; NULL: none */

    /* Set by the layers above; core only carries and releases them. */
    struct tern_dispatch *dispatch; /* ops/dispatch.c */
    void (*dispatch_destroy)(struct tern_context *ctx);
    struct tern_tuner *tuner; /* ops/tuner.c */
    void (*tuner_destroy)(struct tern_context *ctx);
    struct tern_plan_cache *plans; /* graph/cache.c */
    void (*plans_destroy)(struct tern_context *ctx);
    bool closed;                    /* its owner has let go of it; objects made of it may still hold it */
    struct tern_recorder *recorder; /* ops/dispatch.h; NULL: ops run */
    bool passing;                   /* eager ops keep no packed form and no copy of a weight: each is made for one call */
};

void tern_context_ref(struct tern_context *ctx);
void tern_context_unref(struct tern_context *ctx);

/* Puts a tensor that the caller owns under the open scope, if any. On failure the tensor is released and NULL
 * returned. NULL passes through. */
tern_tensor *tern_scope_adopt(struct tern_context *ctx, tern_tensor *t);
void tern_scope_release_all(struct tern_context *ctx);
/* For calls whose tensors belong to objects: as if the caller had no scope open, until tern_scopes_return, which ends what callbacks have
 * left open. */
struct tern_scope_stack tern_scopes_leave(struct tern_context *ctx);
void tern_scopes_return(struct tern_context *ctx, const struct tern_scope_stack *left);
/* Around a callback: no scope is open to it, so that what it makes is the callback's. _back takes what _aside returned; scopes that the
 * callback has left open are an error of `who`, which is returned, and end. Scopes of another thread stay as they are: plans run in
 * threads that have none. */
struct tern_scope_stack tern_scopes_aside(struct tern_context *ctx);
enum tern_status tern_scopes_back(struct tern_context *ctx, const struct tern_scope_stack *aside, const char *who);
/* Around a function that is traced, whose tensors belong to the scope that is open, and which cannot end it. Likewise. */
int tern_scopes_guard(struct tern_context *ctx);
enum tern_status tern_scopes_unguard(struct tern_context *ctx, int floor, const char *who);
/* Of this thread's last tern_context_create, beside tern_create_error. */
enum tern_status tern_create_status(void);

#endif
