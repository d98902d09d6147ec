/* One run of the library: the options that every computing command has, and a context that talks to the terminal. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"

const struct opt run_opts[] = {
    {OPT_DEVICE, 0, "device", "NAME",
     "where to compute: cpu, cuda:0, vulkan ('tern devices' lists\nthem), a list of which the first that works is taken, or\n"
     "auto, the fastest by a short measurement (default: auto for\npictures and exec, else cpu)"},
    {OPT_THREADS, 0, "threads", "N", "threads of the CPU, 1 to 1024 (default: one per core)"},
    {OPT_BUDGET, 0, "budget", "SIZE", "most memory to use: 2GiB, 1.5G, 800MiB, or bytes (default: none)"},
    {OPT_DEVICE_BUDGET, 0, "device-budget", "SIZE",
     "of it, most memory of a GPU's own to use; weights beyond\nlie in the host's (default: as its driver has free)"},
    {OPT_TUNE, 0, "tune", "LEVEL",
     "measure which kernels are fastest and remember it: off\n(default: by a cost model), fast (what counts, for a few\nseconds a "
     "component), or full (everything)"},
    {OPT_TUNE_CACHE, 0, "tune-cache", "FILE",
     "where results are kept, and taken from also with --tune off\n(default: in the cache folder)"},
    {OPT_TUNE_TIME, 0, "tune-time", "SECONDS", "most time to measure for a component (default: fast 5,\nfull no limit)"},
    {OPT_TUNE_MEMORY, 0, "tune-memory", "SIZE", "most memory to measure in (default: 1GiB, with --budget half\nof what is free of it)"},
    {0},
};

const struct opt talk_opts[] = {
    {OPT_JSON, 0, "json", NULL, "one JSON event per line on standard output"},
    {OPT_QUIET, 'q', "quiet", NULL, "no progress, no summary, no warnings of the library"},
    {OPT_VERBOSE, 'v', "verbose", NULL, "the library's informative messages, too"},
    {0},
};

int run_apply(const struct opt *opt, const char *value, struct run_settings *s)
{
    static const char *const dtypes[] = {"f32", "bf16", "f16", "auto", "int8", NULL};
    static const char *const weights[] = {"int8", "int4", NULL};
    static const char *const levels[] = {"off", "fast", "full", NULL}; /* enum tern_tune_level */
    static const enum tern_dtype dtype_of[] = {TERN_F32, TERN_BF16, TERN_F16, TERN_DTYPE_COUNT, TERN_DTYPE_COUNT};
    int choice = 0, code = GO_ON;
    switch (opt->id) {
    case OPT_DEVICE:
        s->device = value;
        break;
    case OPT_DTYPE:
        code = value_choice(opt, value, dtypes, &choice);
        s->dtype = dtype_of[choice];
        s->quantize = choice == 4 ? "*" : NULL;
        s->text_encoder_quantize = NULL;
        s->dtype_given = true;
        break;
    case OPT_WEIGHTS:
        code = value_choice(opt, value, weights, &choice);
        s->weights = choice ? "*:w4" : "*:w8";
        break;
    case OPT_THREADS:
        return value_int(opt, value, 1, 1024, &s->threads);
    case OPT_BUDGET:
        return value_bytes(opt, value, &s->budget);
    case OPT_DEVICE_BUDGET:
        return value_bytes(opt, value, &s->device_budget);
    case OPT_TUNE:
        code = value_choice(opt, value, levels, &choice);
        s->tune.level = (enum tern_tune_level)choice;
        break;
    case OPT_TUNE_CACHE:
        s->tune.cache = value;
        return *value ? GO_ON : usage("option --tune-cache: expected the name of a file, found none");
    case OPT_TUNE_TIME:
        return value_number(opt, value, 0, true, 1e6, &s->tune.seconds);
    case OPT_TUNE_MEMORY:
        return value_bytes(opt, value, &s->tune.bytes);
    case OPT_RECIPE:
        s->recipe = value;
        break;
    case OPT_JSON:
        s->json = true;
        break;
    case OPT_QUIET:
        s->quiet = true;
        break;
    case OPT_VERBOSE:
        s->verbose = true;
        break;
    }
    return code;
}

const char *run_quantize(const struct run_settings *s) { return s->weights ? s->weights : s->recipe ? NULL : s->quantize; }

const char *run_text_quantize(const struct run_settings *s) { return s->weights ? s->weights : s->text_encoder_quantize; }

enum tern_dtype run_dtype(const struct run_settings *s, const struct tern_context *ctx)
{
    return s->dtype == TERN_DTYPE_COUNT || (s->recipe && !s->dtype_given) ? tern_context_fast_dtype(ctx) : s->dtype;
}

static void show_log(enum tern_log_level level, const char *message, void *user)
{
    message_show(level >= TERN_LOG_WARN ? ": warning" : "", message);
}

/* Also when nobody can read what comes of it. */
static bool is_cancelled(void *user) { return interrupt_seen() || ferror(stdout); }

bool run_takes_over(struct run_settings *s, struct tern_context **ctx, int code)
{
    enum tern_status st = tern_error_status(*ctx);
    char *behind = code == FAILED && (st == TERN_E_DEVICE || st == TERN_E_NO_MEMORY) ? tern_context_devices_behind(*ctx) : NULL;
    if (!behind)
        return false;
    run_end(s);
    s->device = s->behind = strdup(behind);
    tern_free_text(*ctx, behind);
    if (!s->behind)
        return false;
    tern_context_destroy(ctx);
    if (s->json)
        event_send(json_pack("{s:s, s:s}", "event", "device", "next", s->behind));
    else
        warn("the job starts again on: %s", s->behind);
    return true;
}

void run_wrote(const struct run_settings *s, const char *path, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    if (s->json) {
        event_send(json_pack("{s:s, s:o}", "event", "done", "path", text_json(path)));
    } else if (!s->quiet) {
        fprintf(stderr, "%s: %s\n", path, text);
    }
}

void run_end(struct run_settings *s)
{
    free(s->behind);
    s->behind = NULL;
}

struct tern_context *run_open(const struct run_settings *s, int *code)
{
    struct tern_context_params params = {
        .device = s->device,
        .threads = s->threads,
        .budget = s->budget,
        .device_budget = s->device_budget,
        .tune = s->tune,
        .log_level = s->verbose ? TERN_LOG_INFO
                     : s->quiet ? TERN_LOG_ERROR
                                : TERN_LOG_WARN,
        .log = show_log,
        .progress = progress_show,
        .cancel = is_cancelled,
    };
    if (s->quantize && s->weights && s->dtype_given) {
        *code = usage("option --weights: --dtype int8 has the UNet's weights in int8 already, and computes in it; with --weights choose "
                      "another --dtype, or leave it out");
        return NULL;
    }
    if (s->recipe && (s->weights || (s->quantize && s->dtype_given))) {
        *code = s->weights ? usage("option --recipe: not together with --weights")
                           : usage("option --recipe: expected --dtype f32, bf16, f16 or auto beside it, found int8, which is all layers");
        return NULL;
    }
    if (s->tune.level == TERN_TUNE_OFF && (s->tune.seconds > 0 || s->tune.bytes)) {
        *code = usage("option --tune-%s: works with --tune fast or full only", s->tune.bytes ? "memory" : "time");
        return NULL;
    }
    progress_setup(s->json, s->quiet);
    interrupt_quiet(s->quiet);
    struct tern_context *ctx = tern_context_create(&params);
    if (ctx)
        return ctx;
    char reason[1024]; /* the text belongs to the last call */
    snprintf(reason, sizeof(reason), "%s", tern_create_error());
    if (is_cancelled(NULL)) {
        *code = cancelled(reason);
        return NULL;
    }
    params.device = NULL; /* whether it was the device's name */
    struct tern_context *other = s->device && strcmp(s->device, "auto") != 0 ? tern_context_create(&params) : NULL;
    *code = other ? usage("option --device: %s", reason) : failed("%s", reason);
    tern_context_destroy(&other);
    return NULL;
}
