/* tern graph: a component's plan, as text or for Graphviz, and its memory. */
#include <stdio.h>
#include <string.h>

#include "command.h"

enum { OPT_BATCH = OPT_OWN, OPT_WIDTH, OPT_HEIGHT, OPT_AFTER, OPT_WITHOUT, OPT_DOT, OPT_MEMORY };

struct settings {
    struct run_settings run;
    struct tern_graph_size size;
    const char *after, *without;
    bool dot, memory;
};

static const struct opt opts[] = {
    {OPT_BATCH, 'b', "batch", "N", "rows (default 1; a guided picture is 2 rows of the UNet)"},
    {OPT_WIDTH, 'W', "width", "PIXELS", "of the picture (default: the model's)"},
    {OPT_HEIGHT, 'H', "height", "PIXELS", "likewise"},
    {OPT_DTYPE, 0, "dtype", "TYPE", "to compute in: f32 (default), bf16, f16"},
    {OPT_AFTER, 0, "after", "PASS",
     "show the graph after that pass: trace, fold, cse, dce, prepare,\nfuse (default: the last), or all of them"},
    {OPT_WITHOUT, 0, "without", "PASSES", "leave passes out, separated by commas, or all"},
    {OPT_DOT, 0, "dot", NULL, "for Graphviz instead of text"},
    {OPT_MEMORY, 0, "memory", NULL, "what lies in memory when most does, instead of the graph"},
    {0},
};

static int apply(const struct opt *opt, const char *value, void *settings)
{
    struct settings *s = settings;
    switch (opt->id) {
    case OPT_BATCH:
        return value_int(opt, value, 1, 128, &s->size.batch);
    case OPT_WIDTH:
        return value_int(opt, value, 8, 8192, &s->size.width);
    case OPT_HEIGHT:
        return value_int(opt, value, 8, 8192, &s->size.height);
    case OPT_AFTER:
        s->after = value;
        return GO_ON;
    case OPT_WITHOUT:
        s->without = value;
        return GO_ON;
    case OPT_DOT:
        s->dot = true;
        return GO_ON;
    case OPT_MEMORY:
        s->memory = true;
        return GO_ON;
    default:
        return run_apply(opt, value, &s->run);
    }
}

static void put_line(void *user, const char *line) { puts(line); }

static void print_graph(const struct settings *s, const struct tern_graph *g)
{
    if (s->dot)
        tern_graph_print_dot(g, put_line, NULL);
    else
        tern_graph_print(g, put_line, NULL);
}

struct shown {
    const struct settings *settings;
    bool any;
};

static void after_pass(void *user, const char *pass, const struct tern_graph *g)
{
    struct shown *shown = user;
    const struct settings *s = shown->settings;
    bool all = s->after && !strcmp(s->after, "all");
    if (!all && (!s->after || strcmp(s->after, pass) != 0))
        return;
    if (all && !s->dot)
        printf("%s== after %s\n", shown->any ? "\n" : "", pass);
    shown->any = true;
    print_graph(s, g);
}

static void print_facts(const struct settings *s, const struct tern_plan *plan)
{
    struct tern_plan_facts f = tern_plan_facts(plan);
    char arena[BYTES_TEXT], least[BYTES_TEXT];
    if (s->run.json)
        event_send(json_pack("{s:s, s:i, s:i, s:I, s:I, s:f}", "event", "plan", "launches", f.launches, "prepared", f.prepared, "arena",
                             (json_int_t)f.arena, "least_arena", (json_int_t)f.least_arena, "compile_time", f.compile_time));
    else if (!s->dot)
        printf("\n%d launches, %d prepared once; arena %s, at least %s\n", f.launches, f.prepared, bytes_text(f.arena, arena),
               bytes_text(f.least_arena, least));
}

static int show(struct tern_context *ctx, const struct settings *s, const char *model, const char *component)
{
    struct tern_pipeline *p = tern_pipeline_load(ctx, model, &(struct tern_pipeline_params){.dtype = s->run.dtype});
    struct tern_graph *g = p ? tern_pipeline_graph(p, component, &s->size) : NULL;
    struct shown shown = {s, false};
    bool quiet = s->memory || s->run.json;
    struct tern_plan *plan =
        g ? tern_plan_compile(g, &(struct tern_plan_params){.without = s->without, .after = quiet ? NULL : after_pass, .user = &shown})
          : NULL;
    int code = plan ? DONE : library_failed(ctx, p != NULL);
    if (plan && s->memory)
        tern_plan_print_memory(plan, put_line, NULL);
    else if (plan && !quiet && !s->after)
        print_graph(s, tern_plan_graph(plan));
    else if (plan && !quiet && !shown.any)
        code = usage("option --after: no pass has the name \"%s\", or it did not run", s->after);
    if (code == DONE)
        print_facts(s, plan);
    tern_plan_unref(&plan);
    tern_graph_destroy(&g);
    tern_pipeline_destroy(&p);
    return code;
}

static int run(const struct command *command, int argc, char **argv)
{
    struct settings s = {0};
    char **arguments;
    int count, code = options_parse(command, argc, argv, &s, &arguments, &count);
    if (code != GO_ON)
        return code;
    struct tern_context *ctx = run_open(&s.run, &code);
    if (!ctx)
        return code;
    code = show(ctx, &s, arguments[0], arguments[1]);
    tern_context_destroy(&ctx);
    return code;
}

const struct command graph_command = {
    .name = "graph",
    .arguments = "MODEL COMPONENT",
    .summary = "Shows the plan of a component, and its memory.",
    .least = 2,
    .most = 2,
    .opts = {opts, run_opts, talk_opts},
    .notes = "MODEL is a diffusers folder, a single .safetensors or .ckpt file, or \"demo\". COMPONENT is text_encoder, unet,\n"
             "vae_decoder or vae_encoder.\n",
    .apply = apply,
    .run = run,
};
