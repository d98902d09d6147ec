/* The report of tern quantize: a table of all layers in Markdown, pictures beside it. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "quantize_report.h"

/* "report.md" -> "report-before-1.png" */
static void picture_name(const char *path, const char *which, int prompt, char *out, size_t size)
{
    snprintf(out, size, "%.*s-%s-%d.png", (int)strlen(path) - 3, path, which, prompt + 1); /* without .md */
}

/* A disk that is full does not cost the recipe, which took hours. */
void report_picture(int prompt, const struct tern_image *before, const struct tern_image *after, void *user)
{
    struct report *r = user;
    char name[4200];
    for (int i = 0; i < 2 && !*r->failed; i++) {
        picture_name(r->path, i ? "after" : "before", prompt, name, sizeof(name));
        interrupt_hold(true);
        if (tern_image_save(i ? after : before, name)) {
            snprintf(r->failed, sizeof(r->failed), "%s", tern_error(r->ctx));
            tern_error_clear(r->ctx);
        }
        interrupt_hold(false);
    }
    r->pictures++;
}

/* A file's name as a link reads it (RFC 3986): blanks, brackets and bars would end the link or the cell. */
static void put_link(FILE *file, const char *name)
{
    fputs("| ![](", file);
    for (const unsigned char *c = (const unsigned char *)name; *c; c++)
        fprintf(file, isalnum(*c) || *c >= 0x80 || strchr("-._~", *c) ? "%c" : "%%%02X", *c);
    fputs(") ", file);
}

static int count_int8(const struct tern_recipe *recipe)
{
    int n = 0;
    for (int i = 0; i < tern_recipe_count(recipe); i++)
        n += tern_recipe_at(recipe, i)->int8;
    return n;
}

static double speedup(const struct tern_recipe_facts *f) { return f->call_int8_seconds > 0 ? f->call_seconds / f->call_int8_seconds : 1; }

static void put_totals(FILE *file, const struct tern_recipe *recipe)
{
    const struct tern_recipe_facts f = tern_recipe_facts(recipe);
    fprintf(file, "# Recipe for %s\n\n", tern_recipe_architecture(recipe));
    fprintf(file, "| | |\n|---|---|\n| layers in int8 | %d of %d |\n", count_int8(recipe), tern_recipe_count(recipe));
    if (tern_recipe_smoothed(recipe))
        fprintf(file, "| norms with factors | %d |\n", tern_recipe_smoothed(recipe));
    fprintf(file, "| a call of the UNet | %.4g ms, without the recipe %.4g ms: a speedup of %.3g |\n", 1e3 * f.call_int8_seconds,
            1e3 * f.call_seconds, speedup(&f));
    fprintf(file, "| by the sum of its steps | %.4g ms, without the recipe %.4g ms |\n", 1e3 * (f.seconds - f.saved), 1e3 * f.seconds);
    fprintf(file, "| SSIM to the pictures without, mean | %.4f |\n| error of the latents | %.3g |\n", f.ssim, f.error);
    fprintf(file, "| trials, and sets that were painted | %d, %d |\n\n", f.trials, f.verified);
}

static void put_layer(FILE *file, const struct tern_recipe_layer *l)
{
    fprintf(file, "| `%s` | %s | %.4g | ", l->name, l->kind, l->density);
    if (l->measured_with == 1)
        fprintf(file, "%.3g", l->error);
    else if (l->measured_with)
        fprintf(file, "at most %.3g, with %d others", l->error, l->measured_with - 1);
    fprintf(file, " | %.4g | %.4g | %s |\n", 1e3 * l->seconds, 1e3 * l->saved, l->decision);
}

struct job {
    const struct report *report;
    const struct tern_recipe *recipe;
};

static void fill(FILE *file, const void *user)
{
    const struct job *j = user;
    char name[4200];
    put_totals(file, j->recipe);
    for (int i = 0; i < j->report->pictures; i++) {
        fprintf(file, "%s", i ? "" : "| without | with the recipe |\n|---|---|\n");
        for (int k = 0; k < 2; k++) {
            picture_name(j->report->path, k ? "after" : "before", i, name, sizeof(name));
            const char *slash = strrchr(name, '/');
            put_link(file, slash ? slash + 1 : name);
        }
        fprintf(file, "|\n");
    }
    fprintf(file, "\n| layer | kind | operations a byte | error | ms | saves ms | decision |\n|---|---|---|---|---|---|---|\n");
    for (int i = 0; i < tern_recipe_count(j->recipe); i++)
        put_layer(file, tern_recipe_at(j->recipe, i));
}

int report_write(const struct report *r, const struct tern_recipe *recipe, const char *path)
{
    const struct job j = {r, recipe};
    if (*r->failed)
        return failed("%s was not written: a picture beside it: %s", path, r->failed);
    return output_write(path, fill, &j);
}

void report_tell(const struct run_settings *s, const struct tern_recipe *recipe, const char *path)
{
    const struct tern_recipe_facts f = tern_recipe_facts(recipe);
    if (s->json)
        event_send(json_pack("{s:s, s:o, s:i, s:i, s:f, s:f, s:f}", "event", "done", "path", text_json(path), "int8", count_int8(recipe),
                             "layers", tern_recipe_count(recipe), "speedup", speedup(&f), "ssim", f.ssim, "error", f.error));
    else
        run_wrote(s, path, "%d of %d layers in int8, speedup %.2f, SSIM %.4f", count_int8(recipe), tern_recipe_count(recipe), speedup(&f),
                  f.ssim);
}
