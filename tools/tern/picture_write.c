/* What making pictures tells and writes. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "picture.h"

/* JSON libraries read integers up to 2^63 - 1; a larger seed is sent as a string. */
static json_t *seed_json(uint64_t seed)
{
    char text[24];
    snprintf(text, sizeof(text), "%" PRIu64, seed);
    return seed <= INT64_MAX ? json_integer((json_int_t)seed) : json_string(text);
}

/* As it was asked for. */
static double cfg_of(const struct picture_settings *s) { return s->cfg == TERN_CFG_ZERO ? 0 : s->cfg; }

void picture_announce(const struct picture_settings *s, size_t peak)
{
    char bytes[BYTES_TEXT];
    if (s->run.json) {
        json_t *event =
            json_pack("{s:s, s:o, s:o, s:o, s:o, s:i, s:f, s:i, s:s, s:s}", "event", "start", "model", text_json(s->model), "prompt",
                      text_json(s->prompt), "negative", text_json(s->negative), "seed", seed_json(s->seed), "steps", s->steps, "cfg",
                      cfg_of(s), "count", s->count, "sampler", tern_sampler_name(s->sampler), "schedule", tern_schedule_name(s->schedule));
        if (event && s->width && s->height) {
            json_object_set_new(event, "width", json_integer(s->width));
            json_object_set_new(event, "height", json_integer(s->height));
        }
        if (event && peak)
            json_object_set_new(event, "peak_bytes", json_integer((json_int_t)peak));
        event_send(event);
    } else if (!s->run.quiet) {
        fprintf(stderr, "seed %" PRIu64 ", %d steps, cfg %g", s->seed, s->steps, cfg_of(s));
        fprintf(stderr, peak ? ", at most %s of memory\n" : "\n", bytes_text(peak, bytes));
    }
}

void picture_tell_choice(const struct tern_choice *c, void *user)
{
    const struct picture_settings *s = user;
    progress_break();
    if (s->run.json)
        event_send(json_pack("{s:s, s:s, s:s, s:s}", "event", "choice", "what", c->what, "value", c->value, "why", c->why));
    else if (!s->run.quiet)
        fprintf(stderr, "%s %s: %s\n", c->what, c->value, c->why);
}

/* A file that is begun is also ended when Ctrl-C comes; no further one is begun then. */
static int save_one(struct picture_job *j, const struct picture_settings *s, int i)
{
    if (interrupt_seen()) {
        char text[64];
        snprintf(text, sizeof(text), "cancelled; %d of %d pictures were written", i, tern_images_count(j->result));
        return cancelled(text);
    }
    char *path = output_name(s->output, i, s->count);
    if (!path)
        return failed("out of memory");
    const struct tern_image *img = tern_images_at(j->result, i);
    interrupt_hold(true);
    enum tern_status status = tern_image_save(img, path);
    interrupt_hold(false);
    int code = status ? library_failed(j->ctx, false) : GO_ON;
    uint64_t seed = s->seed + (uint64_t)i;
    if (!status && s->run.json)
        event_send(json_pack("{s:s, s:o, s:i, s:o, s:i, s:i, s:o}", "event", "image", "path", text_json(path), "index", i, "seed",
                             seed_json(seed), "width", tern_image_width(img), "height", tern_image_height(img), "parameters",
                             text_json(tern_image_text(img, "parameters"))));
    else if (!status && !s->run.quiet)
        fprintf(stderr, "%s: %d x %d, seed %" PRIu64 "\n", path, tern_image_width(img), tern_image_height(img), seed);
    free(path);
    return code;
}

int picture_save(struct picture_job *j, const struct picture_settings *s)
{
    int code = GO_ON;
    for (int i = 0; i < tern_images_count(j->result) && code == GO_ON; i++)
        code = save_one(j, s, i);
    if (code != GO_ON || !s->save_latents)
        return code;
    interrupt_hold(true);
    enum tern_status status = latents_save(j->ctx, s->save_latents, tern_images_latents(j->result));
    interrupt_hold(false);
    if (status)
        return library_failed(j->ctx, false);
    if (s->run.json)
        event_send(json_pack("{s:s, s:o}", "event", "latents", "path", text_json(s->save_latents)));
    return GO_ON;
}

static double seconds_since(const struct timespec *start)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - start->tv_sec) + 1e-9 * (double)(now.tv_nsec - start->tv_nsec);
}

void picture_tell_done(const struct picture_job *j, const struct picture_settings *s)
{
    char bytes[BYTES_TEXT];
    if (s->run.json)
        event_send(json_pack("{s:s, s:f, s:I}", "event", "done", "seconds", seconds_since(&j->start), "memory_peak",
                             (json_int_t)tern_memory_peak(j->ctx)));
    else if (!s->run.quiet)
        fprintf(stderr, "%.1f s, peak memory %s\n", seconds_since(&j->start), bytes_text(tern_memory_peak(j->ctx), bytes));
}
