/* tern bench: its options, and which of the three benches they are for. */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

enum {
    OPT_OP = OPT_OWN,
    OPT_ARCH,
    OPT_ALL_KERNELS,
    OPT_LIST,
    OPT_SIZE,
    OPT_BATCH,
    OPT_RUNS,
    OPT_LIMIT,
    OPT_PLOT,
    OPT_MARKDOWN,
    OPT_DTYPES,
    OPT_BENCH_THREADS
};

static const struct opt opts[] = {
    {OPT_DTYPES, 0, "dtype", "TYPES",
     "to compute in: some of f32, bf16, f16, int8, separated by\ncommas (default: ops f32,bf16; model f32)"},
    {OPT_SIZE, 0, "size", "PIXELS",
     "of a square picture, multiples of 64 from 64 to 2048, or\nseveral, \"256,512\" (default: the model's own; ops: sd15 512,\nsdxl 1024, "
     "vae both)"},
    {OPT_RUNS, 0, "runs", "N", "timed runs of a row, 1 to 101 (default 9)"},
    {OPT_LIMIT, 0, "limit", "SECONDS", "no further runs of a row once it took so long and has three\n(default: ops 1, model 60)"},
    {OPT_OP, 0, "op", "OP", "ops: only that op (conv2d, linear, matmul, sdpa …)"},
    {OPT_ARCH, 0, "arch", "NAME", "ops: only those of sd15, sdxl or vae"},
    {OPT_ALL_KERNELS, 0, "all-kernels", NULL, "ops: by every kernel that takes a call, in turns; * marks the\none that is chosen"},
    {OPT_LIST, 0, "list", NULL, "ops: only tell which calls there are"},
    {OPT_BATCH, 'b', "batch", "N", "model: pictures at once, or several numbers, \"1,2,4,8\"\n(default 1)"},
    {OPT_PLOT, 0, "plot", "FILE", "model: the seconds of a step over sizes or batches, as SVG"},
    {OPT_MARKDOWN, 0, "markdown", NULL, "tables as Markdown"},
    {OPT_DEVICE, 0, "device", "NAME", "where to compute, as for other commands (default: cpu)"},
    {OPT_BENCH_THREADS, 0, "threads", "N", "threads of the CPU (default: one per core); model: or several\nnumbers, \"1,2\""},
    {OPT_BUDGET, 0, "budget", "SIZE", "most memory to use: 2GiB, 1.5G, 800MiB, or bytes (default: none)"},
    {0},
};

/* Numbers between commas. */
static int list_of(const struct opt *opt, const char *text, int least, int most, int multiple, struct bench_list *out)
{
    *out = (struct bench_list){.count = 0};
    for (const char *at = text; at;) {
        char word[24];
        size_t n = strcspn(at, ",");
        if (out->count == BENCH_MOST)
            return usage("option --%s: at most %d numbers", opt->name, BENCH_MOST);
        snprintf(word, sizeof(word), "%.*s", n < sizeof(word) ? (int)n : (int)sizeof(word) - 1, at);
        int *value = &out->value[out->count++], code = value_int(opt, word, least, most, value);
        if (code != GO_ON)
            return code;
        if (*value % multiple)
            return usage("option --%s: expected multiples of %d, found \"%s\"", opt->name, multiple, word);
        at = at[n] ? at + n + 1 : NULL;
    }
    return GO_ON;
}

static int dtypes_of(const struct opt *opt, const char *text, struct bench_settings *s)
{
    static const char *const names[] = {"f32", "bf16", "f16", "int8", NULL};
    static const enum tern_dtype dtype_of[] = {TERN_F32, TERN_BF16, TERN_F16, TERN_I8};
    s->n_dtypes = 0;
    for (const char *at = text; at;) {
        char word[24];
        size_t n = strcspn(at, ",");
        int choice;
        snprintf(word, sizeof(word), "%.*s", n < sizeof(word) ? (int)n : (int)sizeof(word) - 1, at);
        int code = s->n_dtypes == 4 ? usage("option --dtype: at most 4 types") : value_choice(opt, word, names, &choice);
        if (code != GO_ON)
            return code;
        s->dtypes[s->n_dtypes++] = dtype_of[choice];
        at = at[n] ? at + n + 1 : NULL;
    }
    return GO_ON;
}

const char *bench_dtype_name(enum tern_dtype dtype) { return dtype == TERN_I8 ? "int8" : tern_dtype_name(dtype); }

static int op_of(const struct opt *opt, const char *text, struct bench_settings *s)
{
    const char *names[BENCH_KINDS + 1] = {NULL};
    int choice;
    for (int i = 0; i < BENCH_KINDS; i++)
        names[i] = bench_kind_name((enum bench_kind)i);
    s->op = text;
    return value_choice(opt, text, names, &choice);
}

static int apply(const struct opt *opt, const char *value, void *settings)
{
    struct bench_settings *s = settings;
    int choice;
    switch (opt->id) {
    case OPT_DTYPES:
        return dtypes_of(opt, value, s);
    case OPT_SIZE:
        return list_of(opt, value, 64, 2048, 64, &s->sizes);
    case OPT_BATCH:
        return list_of(opt, value, 1, 64, 1, &s->batches);
    case OPT_BENCH_THREADS:
        return list_of(opt, value, 1, 1024, 1, &s->threads);
    case OPT_RUNS:
        return value_int(opt, value, 1, BENCH_MOST_RUNS, &s->runs);
    case OPT_LIMIT:
        return value_number(opt, value, 0, true, 86400, &s->limit);
    case OPT_OP:
        return op_of(opt, value, s);
    case OPT_ARCH:
        s->arch = value;
        return value_choice(opt, value, bench_archs, &choice);
    case OPT_ALL_KERNELS:
        s->all_kernels = true;
        return GO_ON;
    case OPT_LIST:
        s->list = true;
        return GO_ON;
    case OPT_PLOT:
        s->plot = value;
        return GO_ON;
    case OPT_MARKDOWN:
        s->markdown = true;
        return GO_ON;
    default:
        return run_apply(opt, value, &s->run);
    }
}

/* The script has options of its own, some of the same names. */
static const char *not_of_peers(const struct bench_settings *s)
{
    const struct {
        const char *name;
        bool given;
    } all[] = {{"json", s->run.json},     {"markdown", s->markdown}, {"size", s->sizes.count},   {"threads", s->threads.count},
               {"dtype", s->n_dtypes},    {"runs", s->runs},         {"limit", s->limit > 0},    {"device", s->run.device},
               {"budget", s->run.budget}, {"quiet", s->run.quiet},   {"verbose", s->run.verbose}};
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        if (all[i].given)
            return all[i].name;
    return NULL;
}

/* What --list, which runs nothing, has no use for. */
static const char *not_of_list(const struct bench_settings *s)
{
    return s->n_dtypes        ? "dtype"
           : s->runs          ? "runs"
           : s->limit > 0     ? "limit"
           : s->all_kernels   ? "all-kernels"
           : s->threads.count ? "threads"
           : s->run.budget    ? "budget"
                              : NULL;
}

/* Options that are not of that bench, before anything is run. */
static int check(const struct bench_settings *s, int bench, int arguments)
{
    static const char *const names[] = {"ops", "model", "peers"};
    const char *wrong = NULL;
    if (bench != 0)
        wrong = s->op ? "op" : s->arch ? "arch" : s->all_kernels ? "all-kernels" : s->list ? "list" : NULL;
    if (!wrong && bench != 1)
        wrong = s->plot ? "plot" : s->batches.count ? "batch" : NULL;
    if (!wrong && bench == 2)
        wrong = not_of_peers(s);
    if (wrong && bench == 2)
        return usage("option --%s: options of bench/peers/run stand behind '--'", wrong);
    if (wrong)
        return usage("option --%s: is not of 'tern bench %s'; see 'tern bench --help'", wrong, names[bench]);
    if (s->run.json && s->markdown)
        return usage("option --markdown: not together with --json");
    if (s->list && not_of_list(s))
        return usage("option --%s: --list runs nothing", not_of_list(s));
    for (int d = 0; d < s->n_dtypes && s->op; d++)
        if (s->dtypes[d] == TERN_I8 && !bench_op_has_int8(s->op))
            return usage("option --op: %s has no form in int8", s->op);
    if (bench == 0 && s->threads.count > 1)
        return usage("option --threads: 'tern bench ops' takes one number");
    if (bench < 2 && arguments > bench)
        return usage("expected %s, found more; see 'tern bench --help'", bench ? "model [MODEL]" : "ops");
    return s->plot ? output_check(s->plot) : GO_ON;
}

static int run(const struct command *command, int argc, char **argv)
{
    static const char *const names[] = {"ops", "model", "peers", NULL};
    struct bench_settings s = {.runs = 0};
    char **arguments;
    int count, bench = 0, code = options_parse(command, argc, argv, &s, &arguments, &count);
    if (code != GO_ON)
        return code;
    for (bench = 0; names[bench] && count && strcmp(arguments[0], names[bench]) != 0;)
        bench++;
    if (!names[bench])
        return usage("expected ops, model or peers, found \"%s\"", arguments[0]);
    code = check(&s, bench, count - 1);
    if (code != GO_ON)
        return code;
    if (bench == 2)
        return bench_peers(count - 1, arguments + 1);
    s.runs = s.runs ? s.runs : 9;
    if (!s.n_dtypes) {
        s.dtypes[s.n_dtypes++] = TERN_F32;
        if (!bench)
            s.dtypes[s.n_dtypes++] = TERN_BF16;
    }
    if (s.limit <= 0)
        s.limit = bench ? 60 : 1;
    interrupt_catch();
    return bench ? bench_model(&s, count > 1 ? arguments[1] : NULL) : bench_ops(&s);
}

const struct command bench_command = {
    .name = "bench",
    .arguments = "[ops|model [MODEL]|peers [-- OPTIONS]]",
    .summary = "Times ops, models, and other engines beside tern.",
    .most = 64,
    .opts = {opts, talk_opts},
    .notes = "ops: every op of Stable Diffusion 1.5, SDXL and the VAE, as a share of what this machine was measured to do.\n"
             "model: step, text encoder, VAE, start and memory of a model (default: the one that ships with tern).\n"
             "peers: bench/peers/run of a source tree, which runs other engines beside tern; its options stand behind\n"
             "'--'. Times are medians of runs in turns, with the least and the most.\n",
    .apply = apply,
    .run = run,
};
