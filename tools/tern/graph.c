/* tern graph: a component's plan as text, as JSON or for Graphviz, and its memory as a table, as JSON or as a picture. */
#include <stdio.h>
#include <string.h>
#include <tern/quantize.h>

#include "command.h"

enum { OPT_BATCH = OPT_OWN, OPT_WIDTH, OPT_HEIGHT, OPT_AFTER, OPT_WITHOUT, OPT_DOT, OPT_MEMORY, OPT_SVG };

struct settings {
    struct run_settings run;
    struct tern_graph_size size;
    const char *after, *without, *svg;
    bool dot, memory;
};

static const struct opt opts[] = {
    {OPT_BATCH, 'b', "batch", "N", "rows (default 1; a guided picture is 2 rows of the UNet)"},
    {OPT_WIDTH, 'W', "width", "PIXELS", "of the picture, a multiple of 8 (default: the model's)"},
    {OPT_HEIGHT, 'H', "height", "PIXELS", "likewise"},
    {OPT_DTYPE, 0, "dtype", "TYPE",
     "to compute in: f32 (default), bf16, f16, auto: bf16 or f16\nwhere the device is made for it, or int8: all layers of it\nin int8, the "
     "rest as auto"},
    {OPT_WEIGHTS, 0, "weights", "TYPE",
     "keep the weights of its layers in few bits, expanded as\nthey are used: int8, or int4, groups of 32 with a scale"},
    {OPT_RECIPE, 0, "recipe", "FILE", RECIPE_HELP},
    {OPT_AFTER, 0, "after", "PASS",
     "show the graph after that pass: trace, fold, cse, dce,\nmerge, smooth, quantize, chunk, tile, filters, dtypes,\n"
     "pieces, prepare, fuse, pre, tune, algorithm, concat\n(default), or all of them"},
    {OPT_WITHOUT, 0, "without", "PASSES", "leave passes out, separated by commas, or all"},
    {OPT_DOT, 0, "dot", NULL, "for Graphviz instead of text"},
    {OPT_MEMORY, 0, "memory", NULL, "what lies in memory when most does, and what would lower that,\ninstead of the graph"},
    {OPT_SVG, 0, "svg", "FILE", "a picture of the memory over time into FILE, instead of the graph"},
    {0},
};

static int apply(const struct opt *opt, const char *value, void *settings)
{
    struct settings *s = settings;
    switch (opt->id) {
    case OPT_BATCH:
        return value_int(opt, value, 1, 128, &s->size.batch);
    case OPT_WIDTH:
        return value_side(opt, value, 8, &s->size.width);
    case OPT_HEIGHT:
        return value_side(opt, value, 8, &s->size.height);
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
    case OPT_SVG:
        s->svg = value;
        return GO_ON;
    default:
        return run_apply(opt, value, &s->run);
    }
}

/* Options that contradict each other, and a file that cannot be written. */
static int check(const struct settings *s)
{
    const char *memory = s->memory ? "memory" : "svg";
    if (s->dot && s->run.json)
        return usage("option --dot: not together with --json");
    if ((s->memory || s->svg) && s->dot)
        return usage("option --dot: not together with --%s, which shows no graph", memory);
    if ((s->memory || s->svg) && s->after)
        return usage("option --after: not together with --%s, which is about the whole plan", memory);
    return s->svg ? output_check(s->svg) : GO_ON;
}

static void put_line(void *user, const char *line) { puts(line); }

/* The library's object as an event of that name. */
static void put_event(const char *name, const char *line)
{
    json_t *event = json_pack("{s:s}", "event", name), *object = json_loads(line, 0, NULL);
    if (!event || !object || json_object_update(event, object)) {
        json_decref(event);
        event = NULL;
    }
    json_decref(object);
    event_send(event);
}
static void put_graph(void *user, const char *line) { put_event("graph", line); }
static void put_memory(void *user, const char *line) { put_event("memory", line); }

struct shown {
    const struct settings *settings;
    bool any;
    enum tern_status status;
};

static void after_pass(void *user, const char *pass, const struct tern_graph *g)
{
    struct shown *shown = user;
    const struct settings *s = shown->settings;
    bool all = s->after && !strcmp(s->after, "all");
    if (!all && (!s->after || strcmp(s->after, pass) != 0))
        return;
    if (all && !s->dot && !s->run.json)
        printf("%s== after %s\n", shown->any ? "\n" : "", pass);
    shown->any = true;
    if (s->run.json)
        shown->status = tern_graph_print_json(g, pass, put_graph, NULL);
    else if (s->dot)
        tern_graph_print_dot(g, put_line, NULL);
    else
        tern_graph_print(g, put_line, NULL);
}

static enum tern_status print_plan(const struct settings *s, const struct tern_plan *plan)
{
    if (s->memory && s->run.json)
        return tern_plan_print_memory_json(plan, put_memory, NULL);
    if (!s->memory && s->run.json)
        return tern_plan_print_json(plan, put_graph, NULL);
    if (s->memory)
        tern_plan_print_memory(plan, put_line, NULL);
    else if (s->dot)
        tern_graph_print_dot(tern_plan_graph(plan), put_line, NULL);
    else
        tern_graph_print(tern_plan_graph(plan), put_line, NULL);
    return TERN_OK;
}

/* What was measured, as a table or as events; before the last line. */
struct tuned {
    const struct settings *settings;
    int rows;
    double seconds, usual; /* of all steps that were measured with both kernels */
};

static void put_tuned(void *user, const struct tern_tuned_step *t)
{
    struct tuned *u = user;
    double times = t->seconds > 0 && t->usual_seconds > 0 ? t->usual_seconds / t->seconds : 1;
    if (t->usual_seconds > 0) {
        u->seconds += t->steps * t->seconds;
        u->usual += t->steps * t->usual_seconds;
    }
    if (u->settings->run.json) {
        event_send(json_pack("{s:s, s:s, s:s, s:i, s:s, s:f, s:s, s:f}", "event", "tuned", "op", t->op, "output", t->output, "steps",
                             t->steps, "kernel", t->kernel, "seconds", t->seconds, "usual", t->usual, "usual_seconds", t->usual_seconds));
        return;
    }
    if (!u->rows++)
        printf("\nmeasured: steps, result, the fastest kernel, the cost model's choice\n");
    printf("%4d  %-10s %-28s %-24s %9.3f ms", t->steps, t->op, t->output, t->kernel, t->seconds * 1e3);
    if (strcmp(t->kernel, t->usual) != 0)
        printf("  %s %.3f ms, %.2f times as long", t->usual, t->usual_seconds * 1e3, times);
    putchar('\n');
}

static int print_tuning(struct tern_context *ctx, const struct settings *s, const struct tern_plan *plan)
{
    struct tuned u = {.settings = s};
    if (s->dot || (s->svg && !s->memory) || tern_plan_tuning(plan, put_tuned, &u))
        return tern_error_status(ctx) ? library_failed(ctx, false) : GO_ON;
    if (u.rows && !s->run.json)
        printf("together %.3f ms, by the cost model %.3f ms\n", u.seconds * 1e3, u.usual * 1e3);
    return GO_ON;
}

static void put_to_file(void *file, const char *line)
{
    fputs(line, file);
    putc('\n', file);
}

static void fill_svg(FILE *file, const void *plan) { tern_plan_draw_memory(plan, put_to_file, file); }

static int draw(const struct settings *s, const struct tern_plan *plan)
{
    int code = output_write(s->svg, fill_svg, plan);
    if (code == GO_ON && s->run.json)
        event_send(json_pack("{s:s, s:o}", "event", "timeline", "path", text_json(s->svg)));
    else if (code == GO_ON && !s->run.quiet)
        fprintf(stderr, "%s: the arena over %d steps\n", s->svg, tern_plan_facts(plan).launches);
    return code;
}

static void print_facts(const struct settings *s, const struct tern_plan *plan)
{
    struct tern_plan_facts f = tern_plan_facts(plan);
    char arena[BYTES_TEXT], least[BYTES_TEXT];
    if (s->run.json)
        event_send(json_pack("{s:s, s:i, s:i, s:I, s:I, s:f}", "event", "plan", "launches", f.launches, "prepared", f.prepared, "arena",
                             (json_int_t)f.arena, "least_arena", (json_int_t)f.least_arena, "compile_time", f.compile_time));
    else if (!s->dot)
        printf("%s%d launches, %d prepared once; arena %s, at least %s\n", s->svg && !s->memory ? "" : "\n", f.launches, f.prepared,
               bytes_text(f.arena, arena), bytes_text(f.least_arena, least));
}

static int show_plan(struct tern_context *ctx, const struct settings *s, const struct tern_plan *plan, const struct shown *shown)
{
    bool graph = !s->after && (s->memory || !s->svg);
    int code = GO_ON;
    if (shown->status || (graph && print_plan(s, plan)))
        code = library_failed(ctx, false);
    else if (s->after && !shown->any)
        code = usage("option --after: no pass has the name \"%s\", or it did not run", s->after);
    else if (s->svg)
        code = draw(s, plan);
    if (code == GO_ON)
        code = print_tuning(ctx, s, plan);
    if (code != GO_ON)
        return code;
    print_facts(s, plan);
    return DONE;
}

static int show(struct tern_context *ctx, const struct settings *s, const char *model, const char *component)
{
    const bool unet = !strcmp(component, "unet"), text = !strncmp(component, "text_encoder", strlen("text_encoder"));
    const struct tern_pipeline_params load = {.dtype = run_dtype(&s->run, ctx),
                                              .quantize = unet ? run_quantize(&s->run) : NULL,
                                              .text_encoder_quantize = text ? run_quantize(&s->run) : NULL,
                                              .recipe = s->run.recipe};
    struct tern_pipeline *p = tern_pipeline_load(ctx, model, &load);
    struct tern_graph *g = p ? tern_pipeline_graph(p, component, &s->size) : NULL;
    struct shown shown = {.settings = s};
    struct tern_plan_params params = {.without = s->without,
                                      .quantize = p && (unet || text) ? tern_pipeline_layer_words(p, component) : run_quantize(&s->run),
                                      .after = after_pass,
                                      .user = &shown};
    struct tern_plan *plan = g ? tern_plan_compile(g, &params) : NULL;
    int code = plan ? show_plan(ctx, s, plan, &shown) : library_failed(ctx, p != NULL);
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
    code = check(&s);
    if (code != GO_ON)
        return code;
    interrupt_catch();
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
    .notes = "MODEL is a diffusers folder, a single .safetensors or .ckpt file, or \"demo\". COMPONENT is text_encoder,\n"
             "text_encoder_2 (SDXL), unet, vae_decoder or vae_encoder.\n",
    .apply = apply,
    .run = run,
};
