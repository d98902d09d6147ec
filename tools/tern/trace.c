/* The profile of a job as a trace-event file, which Chrome (about:tracing) and Perfetto show: one row a component, one bar a
 * kernel, with what it made, its rates, and its share of the roofline (0: not known). */
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "picture.h"

bool trace_begin(struct trace *t)
{
    t->out = open_memstream(&t->text, &t->size);
    return t->out != NULL;
}

void trace_call(struct trace *t)
{
    const double seconds = now();
    t->began = t->began > 0 ? t->began : seconds;
    t->after = seconds - t->began;
}

/* 0: a component that has no name yet. */
static int row_of(const char *component)
{
    static const char *const rows[] = {"text_encoder", "vae_encoder", "unet", "vae_decoder", "text_encoder_2", "preview_decoder"};
    const int n = sizeof(rows) / sizeof(*rows);
    int i = 0;
    while (i < n && strcmp(rows[i], component))
        i++;
    return i < n ? i + 1 : 0;
}

void trace_kernel(const char *component, const struct tern_step_profile *step, void *user)
{
    struct trace *t = user;
    double seconds = step->seconds > 0 ? step->seconds : 1e-9;
    fprintf(t->out,
            "%s\n{\"name\": \"%s\", \"cat\": \"%s\", \"ph\": \"X\", \"pid\": 1, \"tid\": %d, \"ts\": %.1f, \"dur\": %.1f, \"args\": "
            "{\"component\": \"%s\", \"kernel\": \"%s\", \"output\": \"%s\", \"bytes\": %.0f, \"flops\": %.0f, "
            "\"gflops_per_second\": %.2f, \"gigabytes_per_second\": %.2f, \"roofline\": %.4g}}",
            ftell(t->out) ? "," : "[", step->op, step->kernel, row_of(component), (t->after + step->start) * 1e6, step->seconds * 1e6,
            component, step->kernel, step->output, step->bytes, step->flops, step->flops / seconds * 1e-9, step->bytes / seconds * 1e-9,
            step->roofline);
}

static void fill(FILE *file, const void *user)
{
    const struct trace *t = user;
    fprintf(file, "%s%s\n]\n", t->size ? "" : "[", t->text);
}

int trace_write(struct trace *t, const char *path) { return fflush(t->out) ? failed("out of memory") : output_write(path, fill, t); }

void trace_end(struct trace *t)
{
    if (t->out)
        fclose(t->out);
    free(t->text);
}
