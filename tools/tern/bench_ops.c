/* tern bench ops: every op of the architectures, timed, as a share of what the device does at most; then what each op takes of a whole run.
 */
#include <stdlib.h>
#include <string.h>

#include "bench.h"

#define MOST_CALLS 16 /* kernels of one op */

/* One component's calls of one kind, by the library's choice: in a whole run of it. */
struct sum {
    int calls;
    double seconds, least; /* least: that the peak allows */
};

struct ops {
    struct tern_context *ctx;
    const struct bench_settings *s;
    struct bench_table table;
    struct tern_device_peak peak;
    struct sum sums[BENCH_KINDS];
};

static const struct bench_column columns[] = {{"op", -11},       {"shape", -38}, {"calls", 5}, {"dtype", -5},
                                              {"median ms", 10}, {"least", 9},   {"most", 9},  {"rate", 12},
                                              {"peak", 6},       {"kernel", -1}, {0}};
static const struct bench_column list_columns[] = {{"op", -11}, {"shape", -38}, {"calls", 5}, {0}};
static const struct bench_column sum_columns[] = {{"op", -11}, {"calls", 5}, {"ms", 10}, {"share", 7}, {"peak", 6}, {0}};

/* What a call in int8 multiplies: attention with few keys, or where the level has none of int8, stays in floats. */
static enum tern_dtype multiplied(const struct bench_call *c, enum tern_dtype dtype)
{
    if (dtype != TERN_I8 || strncmp(c->kernel, "sdpa_", 5) != 0 || strstr(c->kernel, "_i8_"))
        return dtype;
    return strstr(c->kernel, "_bf16_") ? TERN_BF16 : TERN_F32;
}

/* Seconds that the device's peak allows; 0: not known. */
static double least_seconds(const struct ops *o, const struct bench_call *c, enum bench_kind kind, enum tern_dtype asked)
{
    const enum tern_dtype dtype = multiplied(c, asked);
    const double peak = dtype == TERN_BF16 ? o->peak.flops_bf16 : dtype == TERN_I8 ? o->peak.ops_i8 : 0;
    double flops = peak > 0 ? peak : o->peak.flops;
    if (bench_is_product(kind))
        return flops > 0 ? c->flops / flops : 0;
    return o->peak.bytes > 0 ? c->bytes / o->peak.bytes : 0;
}

static void share_text(double least, double seconds, char *out, size_t size)
{
    if (least > 0 && seconds > 0)
        snprintf(out, size, "%.0f %%", 100 * least / seconds);
    else
        snprintf(out, size, "-");
}

/* The median. */
static double put_call(const struct ops *o, const struct bench_shape *shape, enum tern_dtype dtype, struct bench_call *c)
{
    struct bench_stat t = bench_stat(c->seconds, c->runs);
    bool product = bench_is_product(shape->kind);
    double rate = (product ? c->flops : c->bytes) / t.median * 1e-9, least = least_seconds(o, c, shape->kind, dtype);
    char text[BENCH_SHAPE_TEXT], calls[16], median[24], fastest[24], slowest[24], speed[32], share[16], kernel[72];
    bench_shape_text(shape, text);
    snprintf(calls, sizeof(calls), "%d", shape->count);
    snprintf(median, sizeof(median), "%.3f", 1e3 * t.median);
    snprintf(fastest, sizeof(fastest), "%.3f", 1e3 * t.least);
    snprintf(slowest, sizeof(slowest), "%.3f", 1e3 * t.most);
    snprintf(speed, sizeof(speed), "%.1f %s", rate, product ? "GFLOP/s" : "GB/s");
    share_text(least, t.median, share, sizeof(share));
    snprintf(kernel, sizeof(kernel), "%.63s%s", c->kernel, o->s->all_kernels && c->chosen ? " *" : "");
    bench_table_row(&o->table, (const char *[]){bench_kind_name(shape->kind), text, calls, bench_dtype_name(dtype), median, fastest,
                                                slowest, speed, share, kernel});
    if (o->s->run.json)
        event_send(json_pack("{s:s, s:s, s:s, s:i, s:s, s:s, s:b, s:i, s:f, s:f, s:f, s:f, s:f, s:f}", "event", "op", "op",
                             bench_kind_name(shape->kind), "shape", text, "calls", shape->count, "dtype", bench_dtype_name(dtype), "kernel",
                             c->kernel, "chosen", c->chosen, "runs", c->runs, "median", t.median, "least", t.least, "most", t.most, "flops",
                             c->flops, "bytes", c->bytes, "share", t.median > 0 ? least / t.median : 0.0));
    return t.median;
}

static int run_shape(struct ops *o, const struct bench_shape *shape, enum tern_dtype dtype)
{
    static struct bench_call calls[MOST_CALLS];
    int n = bench_call_measure(o->ctx, shape, dtype, o->s, calls, MOST_CALLS);
    if (n < 0)
        return library_failed(o->ctx, false);
    if (!n) {
        char text[BENCH_SHAPE_TEXT];
        bench_shape_text(shape, text);
        warn("%s %s: no kernel in %s", bench_kind_name(shape->kind), text, bench_dtype_name(dtype));
    }
    for (int i = 0; i < n; i++) {
        const double median = put_call(o, shape, dtype, &calls[i]);
        if (!calls[i].chosen)
            continue;
        struct sum *sum = &o->sums[shape->kind];
        sum->calls += shape->count;
        sum->seconds += shape->count * median;
        sum->least += shape->count * least_seconds(o, &calls[i], shape->kind, dtype);
    }
    return GO_ON;
}

static void put_sums(struct ops *o, const char *heading)
{
    const struct bench_table t = {sum_columns, o->s->markdown, o->s->run.json};
    double all = 0;
    for (int k = 0; k < BENCH_KINDS; k++)
        all += o->sums[k].seconds;
    if (!t.silent)
        printf("\n%s%s, all calls\n\n", t.markdown ? "### " : "", heading);
    bench_table_head(&t);
    for (int k = 0; k < BENCH_KINDS; k++) {
        const struct sum *sum = &o->sums[k];
        char calls[16], ms[24], part[16], share[16];
        if (!sum->calls)
            continue;
        snprintf(calls, sizeof(calls), "%d", sum->calls);
        snprintf(ms, sizeof(ms), "%.1f", 1e3 * sum->seconds);
        snprintf(part, sizeof(part), "%.1f %%", all > 0 ? 100 * sum->seconds / all : 0);
        share_text(sum->least, sum->seconds, share, sizeof(share));
        bench_table_row(&t, (const char *[]){bench_kind_name((enum bench_kind)k), calls, ms, part, share});
        if (o->s->run.json)
            event_send(json_pack("{s:s, s:s, s:i, s:f, s:f}", "event", "sum", "op", bench_kind_name((enum bench_kind)k), "calls",
                                 sum->calls, "seconds", sum->seconds, "share", sum->seconds > 0 ? sum->least / sum->seconds : 0.0));
    }
    memset(o->sums, 0, sizeof(o->sums));
}

static bool wanted(const struct bench_settings *s, const struct bench_shape *shape)
{
    return !s->op || !strcmp(s->op, bench_kind_name(shape->kind));
}

static void put_heading(const struct bench_settings *s, const char *heading, const char *arch, int size)
{
    if (s->run.json)
        event_send(json_pack("{s:s, s:s, s:i}", "event", "shapes", "arch", arch, "size", size));
    else
        printf("\n%s%s\n\n", s->markdown ? "## " : "", heading);
}

static int run_list(const struct ops *o, const struct bench_shapes *l)
{
    bench_table_head(&o->table);
    for (int i = 0; i < l->count; i++) {
        char text[BENCH_SHAPE_TEXT], calls[16];
        if (!wanted(o->s, &l->at[i]))
            continue;
        bench_shape_text(&l->at[i], text);
        snprintf(calls, sizeof(calls), "%d", l->at[i].count);
        bench_table_row(&o->table, (const char *[]){bench_kind_name(l->at[i].kind), text, calls});
        if (o->s->run.json)
            event_send(json_pack("{s:s, s:s, s:s, s:i}", "event", "op", "op", bench_kind_name(l->at[i].kind), "shape", text, "calls",
                                 l->at[i].count));
    }
    return GO_ON;
}

static int run_arch(struct ops *o, const char *arch, int size)
{
    struct bench_shapes l;
    char heading[64];
    bool known = bench_shapes_of(arch, size, &l);
    int code = !known || l.bad ? failed("out of memory") : GO_ON;
    snprintf(heading, sizeof(heading), "%s, %d x %d", arch, size, size);
    if (code == GO_ON)
        put_heading(o->s, heading, arch, size);
    if (code == GO_ON && o->s->list)
        code = run_list(o, &l);
    for (int d = 0; d < o->s->n_dtypes && code == GO_ON && !o->s->list; d++) {
        char title[96];
        bench_table_head(&o->table);
        for (int i = 0; i < l.count && code == GO_ON; i++)
            if (wanted(o->s, &l.at[i]) && (o->s->dtypes[d] != TERN_I8 || bench_is_quantizable(l.at[i].kind)))
                code = run_shape(o, &l.at[i], o->s->dtypes[d]);
        snprintf(title, sizeof(title), "%s, %s", heading, bench_dtype_name(o->s->dtypes[d]));
        if (code == GO_ON)
            put_sums(o, title);
        if (d + 1 < o->s->n_dtypes && !o->s->run.json)
            putchar('\n');
    }
    free(l.at);
    return code;
}

static void put_peak(const struct ops *o)
{
    const struct tern_device_peak *p = &o->peak;
    int threads = tern_thread_count(o->ctx);
    char bf16[48] = "", i8[48] = "";
    if (o->s->run.json) {
        event_send(json_pack("{s:s, s:i, s:f, s:f, s:f, s:f}", "event", "peak", "threads", threads, "flops", p->flops, "flops_bf16",
                             p->flops_bf16, "ops_i8", p->ops_i8, "bytes", p->bytes));
        return;
    }
    if (p->flops_bf16 > 0)
        snprintf(bf16, sizeof(bf16), ", %.1f in bf16", 1e-9 * p->flops_bf16);
    if (p->ops_i8 > 0)
        snprintf(i8, sizeof(i8), ", %.1f in int8", 1e-9 * p->ops_i8);
    if (p->flops > 0)
        printf("%d threads; measured peak: %.1f GFLOP/s in f32%s%s, %.1f GB/s of memory\n", threads, 1e-9 * p->flops, bf16, i8,
               1e-9 * p->bytes);
    else
        printf("what this device does at most is not known: shares of it are left out\n");
    output_flush();
}

/* Each architecture at the sizes that were asked for, else at its own; the VAE is that of both. */
static int run_all(struct ops *o)
{
    static const struct bench_list own[] = {{{512}, 1}, {{1024}, 1}, {{512, 1024}, 2}};
    int code = GO_ON;
    for (int a = 0; bench_archs[a] && code == GO_ON; a++) {
        const struct bench_list *sizes = o->s->sizes.count ? &o->s->sizes : &own[a];
        for (int i = 0; i < sizes->count && code == GO_ON && (!o->s->arch || !strcmp(o->s->arch, bench_archs[a])); i++)
            code = run_arch(o, bench_archs[a], sizes->value[i]);
    }
    return code == GO_ON ? DONE : code;
}

int bench_ops(const struct bench_settings *s)
{
    int code;
    struct run_settings run = s->run;
    run.threads = s->threads.count ? s->threads.value[0] : 0;
    struct ops o = {.s = s, .table = {s->list ? list_columns : columns, s->markdown, s->run.json}};
    o.ctx = run_open(&run, &code);
    if (!o.ctx)
        return code;
    if (!s->list && tern_device_peak(o.ctx, &o.peak))
        code = library_failed(o.ctx, false);
    else {
        if (!s->list)
            put_peak(&o);
        code = run_all(&o);
    }
    tern_context_destroy(&o.ctx);
    return code;
}
