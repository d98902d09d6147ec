/* The choice: units by what they save for what they lose, and pictures made with all of them together. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "models/quantize/analysis.h"

#define LEAST_ERROR 1e-12 /* a unit that changes nothing is not worth endlessly much */

/* Seconds for each unit of error; what saves nothing is worth nothing. */
static double worth(const struct tern_unit *u)
{
    return u->saved > 0 ? u->saved / (u->error > LEAST_ERROR ? u->error : LEAST_ERROR) : u->saved;
}

static double speedup(const struct tern_quantize_run *run, double saved)
{
    const double all = run->recipe->facts.seconds, left = all - saved;
    return left > 0 ? all / left : 1;
}

/* The best that may be taken and is not, or the worst that is; -1: none. */
static int find(const struct tern_quantize_run *run, bool taken)
{
    int at = -1;
    for (int i = 0; i < run->units; i++) {
        const struct tern_unit *u = &run->unit[i];
        if (u->taken != taken || !u->fits)
            continue;
        const double better = at < 0 ? 1 : worth(u) - worth(&run->unit[at]);
        if (taken ? at < 0 || better < 0 : better > 0)
            at = i;
    }
    return at;
}

/* The recipe says what the units say. */
static void apply(struct tern_quantize_run *run)
{
    struct tern_recipe *r = run->recipe;
    r->facts.saved = 0;
    for (int i = 0; i < r->count; i++)
        r->layer[i].int8 = false;
    for (int i = 0; i < run->units; i++)
        for (int k = 0; run->unit[i].taken && k < run->unit[i].n; k++) {
            struct tern_recipe_layer *l = &r->layer[run->order[run->unit[i].first + k]];
            l->int8 = true;
            r->facts.saved += l->saved;
        }
}

static int count_int8(const struct tern_recipe *r)
{
    int n = 0;
    for (int i = 0; i < r->count; i++)
        n += r->layer[i].int8;
    return n;
}

static void take(struct tern_quantize_run *run, int unit, double *saved)
{
    run->unit[unit].taken = true;
    *saved += run->unit[unit].saved;
}

/* Unit by unit, until a whole call reaches the speed: from where the sum of what they save says so it is run. */
static enum tern_status reach_speedup(struct tern_quantize_run *run)
{
    const double target = run->params.speedup;
    double saved = 0, best = 1, found = 0;
    int layers = 0, next = find(run, false);
    while (found < target && next >= 0 && run->unit[next].saved > 0) {
        take(run, next, &saved);
        apply(run);
        next = find(run, false);
        const bool last = next < 0 || run->unit[next].saved <= 0; /* also where the sum does not say so */
        if (speedup(run, saved) < target && !last)
            continue;
        tern_quantize_tell(run, 0, 1);
        if (tern_quantize_time(run))
            return tern_error_status(run->ctx);
        tern_quantize_tell(run, 1, 0);
        found = run->recipe->facts.call_seconds / run->recipe->facts.call_int8_seconds;
        layers = found > best ? count_int8(run->recipe) : layers;
        best = fmax(best, found);
    }
    if (found >= target)
        return TERN_OK;
    return tern_fail(run->ctx, TERN_E_UNSUPPORTED,
                     "speedup: %.4g cannot be reached: the best is %.4g, with %d of %d layers in int8; higher thresholds of the error "
                     "may help",
                     target, best, layers, run->recipe->count);
}

/* Without a speed to reach all that fits is taken. */
static enum tern_status choose(struct tern_quantize_run *run)
{
    double saved = 0;
    if (run->params.speedup > 0)
        return reach_speedup(run);
    for (int i; (i = find(run, false)) >= 0;)
        take(run, i, &saved);
    apply(run);
    return TERN_OK;
}

/* ---- pictures */

static void drop_pictures(struct tern_quantize_run *run, struct tern_image **pictures)
{
    for (int i = 0; i < run->params.n_prompts; i++)
        tern_image_destroy(&pictures[i]);
}

static enum tern_status paint(struct tern_quantize_run *run, const char *words, struct tern_image **pictures)
{
    float *latents = tern_alloc(run->ctx, (size_t)(run->large.values * run->params.n_prompts) * sizeof(*latents));
    drop_pictures(run, pictures);
    if (latents)
        tern_calibration_run(&run->large, words, latents, pictures);
    tern_free(run->ctx, latents);
    return tern_error_status(run->ctx);
}

static enum tern_status compare(struct tern_quantize_run *run, double *ssim)
{
    double sum = 0, one = 0;
    for (int i = 0; i < run->params.n_prompts; i++) {
        if (tern_image_ssim(run->before[i], run->after[i], &one))
            return tern_error_status(run->ctx);
        sum += one;
    }
    *ssim = sum / run->params.n_prompts;
    return TERN_OK;
}

/* Of pictures by those words. The pictures without any stand for the VAE, of which nothing else that is kept tells. */
static void picture_key(const struct tern_quantize_run *run, const char *words, char key[TERN_KEY_TEXT])
{
    struct tern_key k = {{2, 0}};
    tern_key_add_text(&k, words);
    for (int i = 0; i < run->params.n_prompts; i++)
        tern_key_add_bytes(&k, tern_image_data(run->before[i]),
                           (size_t)tern_image_width(run->before[i]) * (size_t)tern_image_height(run->before[i]) * 3);
    tern_key_text(tern_key_finish(k), key);
}

/* How like the pictures are with the layers that the recipe says. *painted: they are there. */
static enum tern_status verify(struct tern_quantize_run *run, double *ssim, bool *painted)
{
    char key[TERN_KEY_TEXT];
    char *words = tern_recipe_words(run->recipe);
    if (!words)
        return tern_error_status(run->ctx);
    picture_key(run, words, key);
    *painted = !tern_state_get(&run->state, key, -1, 1, ssim);
    if (*painted && paint(run, words, run->after) == TERN_OK && compare(run, ssim) == TERN_OK)
        tern_state_put(&run->state, key, *ssim);
    tern_free(run->ctx, words);
    run->recipe->facts.verified++;
    if (!tern_failed(run->ctx))
        tern_quantize_tell(run, 1, 0);
    return tern_error_status(run->ctx);
}

/* The unit that is worth least goes; of several layers the half that is worth less. */
static enum tern_status drop_worst(struct tern_quantize_run *run)
{
    const int worst = find(run, true);
    if (worst < 0)
        return TERN_OK;
    if (run->unit[worst].n > 1) {
        if (tern_quantize_split(run, worst))
            return tern_error_status(run->ctx);
        struct tern_unit *a = &run->unit[worst], *b = &run->unit[run->units - 1];
        const bool first = !a->fits || (b->fits && worth(a) < worth(b));
        a->taken = a->fits && !first;
        b->taken = b->fits && first;
    } else {
        run->unit[worst].taken = false;
        run->unit[worst].fits = false;
    }
    apply(run);
    return TERN_OK;
}

static enum tern_status reach_ssim(struct tern_quantize_run *run)
{
    struct tern_recipe_facts *f = &run->recipe->facts;
    double best = -1;
    bool painted = false;
    while (!verify(run, &f->ssim, &painted) && run->params.ssim > 0 && f->ssim < run->params.ssim && count_int8(run->recipe)) {
        best = fmax(best, f->ssim);
        tern_quantize_tell(run, 0, 1);
        if (drop_worst(run))
            return tern_error_status(run->ctx);
    }
    if (!tern_failed(run->ctx) && run->params.ssim > 0 && !count_int8(run->recipe))
        return tern_fail(run->ctx, TERN_E_UNSUPPORTED,
                         "ssim: %.9g cannot be reached with any layer in int8: the best is %.9g; another prompt, more steps or lower "
                         "thresholds of the error may help",
                         run->params.ssim, best);
    char *words = tern_failed(run->ctx) || painted ? NULL : tern_recipe_words(run->recipe);
    if (words)
        paint(run, words, run->after);
    tern_free(run->ctx, words);
    return tern_error_status(run->ctx);
}

/* ---- reasons */

static enum tern_status explain(struct tern_quantize_run *run, const struct tern_unit *u)
{
    char text[TERN_RECIPE_REASON];
    const double limit = tern_quantize_threshold(run, u);
    if (u->taken)
        snprintf(text, sizeof(text), "int8: error %.3g is at most %.3g", u->error, limit);
    else if (u->error > limit)
        snprintf(text, sizeof(text), "stays: error %.3g is above %.3g", u->error, limit);
    else
        snprintf(text, sizeof(text), "stays: the target is %s without it", run->params.ssim > 0 ? "not reached with it, but" : "reached");
    for (int i = 0; i < u->n; i++)
        if (tern_recipe_decide(run->recipe, run->order[u->first + i], text))
            return tern_error_status(run->ctx);
    return TERN_OK;
}

enum tern_status tern_quantize_choose(struct tern_quantize_run *run)
{
    struct tern_recipe_facts *f = &run->recipe->facts;
    if (choose(run))
        return tern_error_status(run->ctx);
    if (run->params.ssim > 0 && !count_int8(run->recipe))
        return tern_fail(
            run->ctx, TERN_E_UNSUPPORTED,
            "ssim: %.4g asks for layers in int8, and the thresholds leave all as they are; higher ones of the error, or a lower one of the "
            "compute density, may help",
            run->params.ssim);
    if (paint(run, NULL, run->before))
        return tern_error_status(run->ctx);
    tern_quantize_tell(run, 1, 0);
    if (reach_ssim(run))
        return tern_error_status(run->ctx);
    for (int i = 0; i < run->units; i++)
        if (explain(run, &run->unit[i]))
            return tern_error_status(run->ctx);
    if (tern_quantize_time(run))
        return tern_error_status(run->ctx);
    tern_quantize_tell(run, 1, 0);
    return tern_quantize_try(run, &f->error);
}
