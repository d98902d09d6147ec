/* tern bench model: whole pictures, timed stage by stage. Each row is a context of its own: the first picture tells start-up and memory,
 * the others the times of text encoder, UNet step and VAE. */
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "clock.h"

struct model_row {
    enum tern_dtype dtype;
    int threads, size, batch, runs;
    double first_step;                      /* seconds from the start of loading to the first step of the first picture */
    double flops;                           /* of a step */
    size_t memory;                          /* most that was allocated at once; mapped files are left out */
    struct bench_stat encode, step, decode; /* of the other pictures; decode: of one */
};

/* What is noted of one call. */
struct watch {
    double sample; /* when the first step began */
    double encode, step, decode;
};

static void note(const struct tern_progress *p, void *user)
{
    struct watch *w = user;
    if (!strcmp(p->stage, "encode"))
        w->encode = p->seconds;
    else if (!strcmp(p->stage, "sample") && !p->done)
        w->sample = now();
    else if (!strcmp(p->stage, "sample"))
        w->step = p->seconds;
    else if (!strcmp(p->stage, "decode") && p->done == p->total)
        w->decode = p->seconds / (double)p->total;
}

/* One step for a batch of pictures. Sets the row's size to what they have. */
static bool paint(struct tern_pipeline *p, struct model_row *r)
{
    struct tern_txt2img_params q = {.prompt = "a boat on the sea at sunset",
                                    .negative_prompt = "rain",
                                    .steps = 1,
                                    .count = r->batch,
                                    .seed = 1,
                                    .width = r->size,
                                    .height = r->size,
                                    .sampler = TERN_SAMPLER_EULER}; /* a call of the UNet for each step */
    struct tern_images *images = tern_generate(p, &q);
    if (!images)
        return false;
    r->size = tern_image_width(tern_images_at(images, 0));
    tern_images_destroy(&images);
    return true;
}

/* Multiplications and additions of a step: the UNet with guidance. */
static bool count_flops(struct tern_pipeline *p, struct model_row *r)
{
    struct tern_graph *g = tern_pipeline_graph(p, "unet", &(struct tern_graph_size){2 * r->batch, r->size, r->size});
    struct tern_plan *plan = tern_plan_compile(g, NULL);
    r->flops = plan ? tern_plan_facts(plan).flops : 0;
    tern_graph_destroy(&g);
    tern_plan_unref(&plan);
    return r->flops > 0;
}

static bool measure(struct tern_context *ctx, struct model_row *r, const struct bench_settings *s, const char *model)
{
    static double seconds[3][BENCH_MOST_RUNS];
    struct watch w = {0};
    double start = now();
    const bool int8 = r->dtype == TERN_I8;
    const struct tern_pipeline_params params = {.dtype = int8 ? tern_context_fast_dtype(ctx) : r->dtype,
                                                .quantize = int8 ? "*" : NULL,
                                                .keep_text_encoder = true};
    progress_watch(note, &w);
    struct tern_pipeline *p = tern_pipeline_load(ctx, model, &params);
    bool ok = p && paint(p, r);
    r->first_step = w.sample - start;
    r->memory = tern_memory_peak(ctx);
    start = now();
    for (r->runs = 0; ok && r->runs < s->runs && (r->runs < 3 || now() - start < s->limit); r->runs += ok) {
        ok = paint(p, r);
        seconds[0][r->runs] = w.encode;
        seconds[1][r->runs] = w.step;
        seconds[2][r->runs] = w.decode;
    }
    ok = ok && count_flops(p, r);
    progress_watch(NULL, NULL);
    tern_pipeline_destroy(&p);
    if (!ok)
        return false;
    struct bench_stat *stats[] = {&r->encode, &r->step, &r->decode};
    for (int i = 0; i < 3; i++)
        *stats[i] = bench_stat(seconds[i], r->runs);
    return true;
}

static const struct bench_column columns[] = {{"size", 5},          {"batch", 5},  {"threads", 7},       {"dtype", -5}, {"UNet step s", 12},
                                              {"least", 9},         {"most", 9},   {"picture", 9},       {"TFLOP", 8},  {"GFLOP/s", 8},
                                              {"VAE decode s", 13}, {"text s", 8}, {"first step s", 13}, {"memory", 9}, {0}};

static json_t *stat_json(const struct bench_stat *t)
{
    return json_pack("{s:f, s:f, s:f}", "median", t->median, "least", t->least, "most", t->most);
}

static void put_row(const struct bench_table *t, const struct model_row *r)
{
    char size[16], batch[16], threads[16], number[9][24], memory[BYTES_TEXT];
    const double values[] = {r->step.median,   r->step.least,    r->step.most, r->step.median / r->batch,
                             r->decode.median, r->encode.median, r->first_step};
    const double rate = r->step.median > 0 ? 1e-9 * r->flops / r->step.median : 0;
    snprintf(size, sizeof(size), "%d", r->size);
    snprintf(batch, sizeof(batch), "%d", r->batch);
    snprintf(threads, sizeof(threads), "%d", r->threads);
    for (int i = 0; i < 7; i++)
        snprintf(number[i], sizeof(number[i]), "%.4f", values[i]);
    snprintf(number[7], sizeof(number[7]), "%.3f", 1e-12 * r->flops);
    snprintf(number[8], sizeof(number[8]), "%.0f", rate);
    bench_table_row(t, (const char *[]){size, batch, threads, bench_dtype_name(r->dtype), number[0], number[1], number[2], number[3],
                                        number[7], number[8], number[4], number[5], number[6], bytes_text(r->memory, memory)});
    if (t->silent)
        event_send(json_pack("{s:s, s:i, s:i, s:i, s:s, s:i, s:o, s:o, s:o, s:f, s:f, s:I}", "event", "model", "size", r->size, "batch",
                             r->batch, "threads", r->threads, "dtype", bench_dtype_name(r->dtype), "runs", r->runs, "step",
                             stat_json(&r->step), "decode", stat_json(&r->decode), "encode", stat_json(&r->encode), "first_step",
                             r->first_step, "flops", r->flops, "memory", (json_int_t)r->memory));
}

static int run_row(struct model_row *r, const struct bench_settings *s, const char *model, const struct bench_table *t, bool first)
{
    int code;
    struct run_settings run = s->run;
    run.threads = r->threads;
    struct tern_context *ctx = run_open(&run, &code);
    if (!ctx)
        return code;
    r->threads = tern_thread_count(ctx);
    code = measure(ctx, r, s, model) ? GO_ON : library_failed(ctx, false);
    if (code == GO_ON && first) /* not before: of a model that is not there is no table */
        bench_table_head(t);
    if (code == GO_ON)
        put_row(t, r);
    tern_context_destroy(&ctx);
    return code;
}

/* What the points of a line differ in. */
enum over { OVER_SIZES, OVER_BATCHES, OVER_THREADS };
static const char *const over_names[] = {"pixels of a side", "pictures at once", "threads"};

/* By dtype, by what lines are of, then by what they go over. */
struct mark {
    char line[64];
    double x, y;
    int order; /* of the line: that of its first row */
};

static int compare(const void *a, const void *b)
{
    const struct mark *x = a, *y = b;
    return x->order != y->order ? x->order - y->order : x->x < y->x ? -1 : x->x > y->x;
}

static void name_line(const struct model_row *r, enum over over, char *name, size_t size)
{
    size_t n = (size_t)snprintf(name, size, "%s", bench_dtype_name(r->dtype));
    if (over != OVER_SIZES)
        n += (size_t)snprintf(name + n, size - n, ", %d x %d", r->size, r->size);
    if (over != OVER_BATCHES)
        n += (size_t)snprintf(name + n, size - n, ", batch %d", r->batch);
    if (over != OVER_THREADS)
        snprintf(name + n, size - n, ", %d threads", r->threads);
}

/* A line for each dtype, number of threads and batch, over the sizes; with one size over the batches, with one of both over the threads. */
static int plot(const struct model_row *rows, int n, const struct bench_settings *s)
{
    const bool one_size = s->sizes.count < 2, one_batch = s->batches.count < 2;
    const enum over by = !one_size ? OVER_SIZES : !one_batch ? OVER_BATCHES : s->threads.count > 1 ? OVER_THREADS : OVER_SIZES;
    struct bench_point *points = calloc((size_t)n, sizeof(*points));
    struct mark *marks = calloc((size_t)n, sizeof(*marks));
    for (int i = 0; points && marks && i < n; i++) {
        const struct model_row *r = &rows[i];
        struct mark *m = &marks[i];
        name_line(r, by, m->line, sizeof(m->line));
        for (m->order = 0; strcmp(marks[m->order].line, m->line) != 0;)
            m->order++;
        m->x = by == OVER_SIZES ? r->size : by == OVER_BATCHES ? r->batch : r->threads;
        m->y = r->step.median / r->batch;
    }
    if (points && marks)
        qsort(marks, (size_t)n, sizeof(*marks), compare);
    for (int i = 0; points && marks && i < n; i++)
        points[i] = (struct bench_point){marks[i].line, marks[i].x, marks[i].y};
    const struct bench_plot p = {"UNet step with guidance, seconds for each picture", over_names[by], points, n};
    int code = points && marks ? bench_plot_write(s->plot, &p) : failed("out of memory");
    free(points);
    free(marks);
    return code;
}

/* The list's i-th value; 0 when it is empty. */
static int at(const struct bench_list *l, int i) { return l->count ? l->value[i] : 0; }
static int count(const struct bench_list *l) { return l->count ? l->count : 1; }

int bench_model(const struct bench_settings *s, const char *model)
{
    const struct bench_table t = {columns, s->markdown, s->run.json};
    int most = s->n_dtypes * count(&s->threads) * count(&s->batches) * count(&s->sizes), n = 0, code = GO_ON;
    struct model_row *rows = calloc((size_t)most, sizeof(*rows));
    if (!rows)
        return failed("out of memory");
    for (int i = 0; i < most && code == GO_ON; i++) { /* sizes change first, then batches, threads, dtypes */
        int size = i % count(&s->sizes), rest = i / count(&s->sizes), batch = rest % count(&s->batches);
        rest /= count(&s->batches);
        rows[n] = (struct model_row){.size = at(&s->sizes, size),
                                     .batch = s->batches.count ? s->batches.value[batch] : 1,
                                     .threads = at(&s->threads, rest % count(&s->threads)),
                                     .dtype = s->dtypes[rest / count(&s->threads)]};
        code = run_row(&rows[n], s, model, &t, !n);
        n++;
    }
    if (code == GO_ON && s->plot)
        code = plot(rows, n, s);
    free(rows);
    return code == GO_ON ? DONE : code;
}
