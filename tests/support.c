/* What several test programs need: a context, golden files, comparisons. */
#include "support.h"
#include "conformance/guard.h"
#include "core/status.h"

#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <tern/conformance.h>
#include <tern/ops.h>
#include <tern/random.h>
#include <tern/tensor.h>

struct tern_context *support_context(void)
{
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = 1});
    if (!ctx)
        fail_msg("no context: %s", tern_create_error());
    return ctx;
}

static size_t idle; /* of the group's context when it was new */

int support_setup(void **state)
{
    struct tern_context *ctx = support_context();
    idle = tern_memory_used(ctx);
    *state = ctx;
    return 0;
}

int support_teardown(void **state)
{
    struct tern_context *ctx = *state;
    bool left = tern_memory_used(ctx) != idle;
    tern_context_destroy(&ctx);
    return left;
}

json_t *support_json(const char *name)
{
    char path[1024];
    json_error_t e;
    snprintf(path, sizeof(path), "%s/%s", TERN_TEST_DATA, name);
    json_t *o = json_load_file(path, 0, &e);
    if (!o)
        fail_msg("%s: line %d: %s", path, e.line, e.text);
    return o;
}

struct tern_weights *support_tensors(struct tern_context *ctx, const char *name)
{
    char path[1024];
    snprintf(path, sizeof(path), "%s/%s.safetensors", TERN_TEST_DATA, name);
    struct tern_weights *w = tern_weights_open(ctx, path);
    if (!w)
        fail_msg("%s", tern_error(ctx));
    return w;
}

float *support_f32(const struct tern_weights *w, const char *name, int64_t *n)
{
    const tern_tensor *t = tern_weights_get(w, name);
    if (!t)
        fail_msg("no tensor %s", name);
    *n = tern_tensor_numel(t);
    size_t size = (size_t)*n * sizeof(float);
    float *out = malloc(size ? size : 1);
    assert_non_null(out);
    assert_int_equal(tern_tensor_read(t, TERN_F32, out, size), TERN_OK);
    return out;
}

tern_tensor *support_noise(struct tern_context *ctx, uint64_t seed, int ndim, const int64_t *shape, double scale, enum tern_dtype dtype)
{
    struct tern_generator g;
    int64_t n = 1;
    for (int i = 0; i < ndim; i++)
        n *= shape[i];
    float *values = malloc((size_t)n * sizeof(*values) + 1);
    assert_non_null(values);
    tern_generator_seed(&g, TERN_GENERATOR_CPU, seed);
    tern_generator_randn(&g, values, n);
    for (int64_t i = 0; i < n; i++)
        values[i] *= (float)scale;
    tern_tensor *t = tern_cast(tern_tensor_create(ctx, TERN_F32, ndim, shape, values), dtype);
    free(values);
    assert_non_null(t);
    return t;
}

float *support_values(const tern_tensor *t, int64_t *n)
{
    *n = tern_tensor_numel(t);
    float *v = calloc((size_t)*n + 1, sizeof(*v));
    assert_non_null(v);
    assert_int_equal(tern_tensor_read(t, TERN_F32, v, (size_t)*n * sizeof(*v)), TERN_OK);
    return v;
}

int support_conformance(struct tern_context *ctx, const char *device, const char *kernel)
{
    struct tern_conformance *c = tern_conformance_create(ctx, &(const struct tern_conformance_params){.device = device, .kernel = kernel});
    int passed = 0;
    if (!c)
        fail_msg("%s", tern_error(ctx));
    for (int i = 0; i < tern_conformance_facts(c).checks; i++) {
        struct tern_conformance_outcome out;
        assert_int_equal(tern_conformance_run(c, i, &out), TERN_OK);
        if (out.result == TERN_CONFORMANCE_FAILED)
            fail_msg("%s: %s", tern_conformance_get(c, i).name, out.message);
        passed += out.result == TERN_CONFORMANCE_PASSED;
    }
    tern_conformance_destroy(&c);
    return passed;
}

double support_nmse(const float *a, const float *b, int64_t n)
{
    double error = 0, power = 0;
    for (int64_t i = 0; i < n; i++) {
        error += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        power += (double)b[i] * (double)b[i];
    }
    if (isnan(error) || isnan(power))
        return INFINITY;
    return error == 0 ? 0 : error / power;
}

double support_tensor_nmse(const tern_tensor *a, const tern_tensor *b)
{
    int64_t n, m;
    float *x = support_values(a, &n), *y = support_values(b, &m);
    assert_int_equal(n, m);
    const double e = support_nmse(x, y, n);
    free(x);
    free(y);
    return e;
}

struct tern_context *support_guarded(struct tern_guard *guard, int threads)
{
    tern_guard_init(guard);
    struct tern_context *ctx =
        tern_context_create(&(struct tern_context_params){.threads = threads, .allocator = tern_guard_allocator(guard)});
    assert_non_null(ctx);
    return ctx;
}

void support_error(struct tern_context *ctx, enum tern_status status, const char *part)
{
    if (tern_error_status(ctx) != status || !strstr(tern_error(ctx), part))
        fail_msg("expected %s with \"%s\", found %s: %s", tern_status_name(status), part, tern_status_name(tern_error_status(ctx)),
                 tern_error(ctx));
    tern_error_clear(ctx);
}

static void *failing_alloc(size_t size, size_t alignment, void *user)
{
    struct support_allocator *state = user;
    state->count++;
    if (state->fail_at && state->count >= state->fail_at)
        return NULL;
    size_t rounded = (size + alignment - 1) / alignment * alignment;
    void *p = aligned_alloc(alignment, rounded ? rounded : alignment);
    state->live += p != NULL;
    return p;
}

static void failing_free(void *ptr, size_t size, void *user)
{
    struct support_allocator *state = user;
    (void)size;
    state->live -= ptr != NULL;
    free(ptr);
}

struct tern_allocator support_failing(struct support_allocator *state)
{
    return (struct tern_allocator){.alloc = failing_alloc, .free = failing_free, .user = state};
}

void support_other_record(const struct support_other *state) { tern_fail(state->ctx, state->status, "of another thread"); }

static void *record(void *user)
{
    support_other_record(user);
    return NULL;
}

static void *other_alloc(size_t size, size_t alignment, void *user)
{
    struct support_other *o = user;
    pthread_t thread;
    if (++o->count == o->at) {
        assert_int_equal(pthread_create(&thread, NULL, record, o), 0);
        pthread_join(thread, NULL);
    }
    const size_t rounded = (size + alignment - 1) / alignment * alignment;
    return aligned_alloc(alignment, rounded ? rounded : alignment);
}

static void other_free(void *ptr, size_t size, void *user) { free(ptr); }

struct tern_allocator support_other_thread(struct support_other *state)
{
    return (struct tern_allocator){.alloc = other_alloc, .free = other_free, .user = state};
}

/* glibc's file of numbers in a locale: few systems have other locales ready, or what localedef makes them of. The usual names of
 * codesets are none of its business: a name without one fits. */
void support_point(const char *folder, const char *point)
{
    if (!strcmp(point, ".")) {
        setlocale(LC_NUMERIC, "C");
        return;
    }
    struct {
        uint32_t magic, count, at[6]; /* point, separator of thousands, its groups, both as wide characters, codeset */
        char text[16];                /* the point; the rest is empty, and zero */
    } file = {0x20031115 ^ LC_NUMERIC, 6, {32, 40, 40, 44, 44, 40}, ""};
    char name[64], path[512];
    snprintf(file.text, 8, "%s", point);
    snprintf(name, sizeof(name), "point%02x%02x", (unsigned char)point[0], (unsigned char)point[1]);
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    mkdir(path, 0700);
    snprintf(path, sizeof(path), "%s/%s/LC_NUMERIC", folder, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fwrite(&file, sizeof(file), 1, f);
    fclose(f);
    setenv("LOCPATH", folder, 1);
    const char *there = setlocale(LC_NUMERIC, name);
    unsetenv("LOCPATH");
    if (!there) {
        print_message("skipped: this C library takes no locale of glibc's form\n");
        skip();
    }
    assert_string_equal(localeconv()->decimal_point, point);
}

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define WATCHED
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define WATCHED
#endif

bool support_is_watched(void)
{
#ifdef WATCHED
    return true;
#else
    return false;
#endif
}

void support_skip_watched(void)
{
    if (!support_is_watched())
        return;
    print_message("not run: the sanitizer needs address space of its own\n");
    skip();
}

bool support_leave_space(size_t more)
{
    unsigned long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    const bool read = f && fscanf(f, "%lu", &pages) == 1;
    if (f)
        fclose(f);
    const rlim_t most = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + more;
    return read && !setrlimit(RLIMIT_AS, &(struct rlimit){most, most});
}

long support_resident(const void *mapping)
{
    char line[512];
    long kib = -1;
    unsigned long begin = 0;
    FILE *f = fopen("/proc/self/smaps", "r");
    assert_non_null(f);
    while (kib < 0 && fgets(line, sizeof(line), f)) {
        if (sscanf(line, "%lx-", &begin) == 1 && strchr(line, '-'))
            continue;
        if (begin == (unsigned long)(uintptr_t)mapping)
            sscanf(line, "Rss: %ld", &kib);
    }
    fclose(f);
    return kib;
}
