/* Progress of a job: a bar on a terminal, plain lines elsewhere, events for programs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command.h"

#define BAR 24
/* Plain lines, and redraws of the bar, are at least so many seconds apart. */
#define LINE_SECONDS 1.0
#define DRAW_SECONDS 0.05

static struct {
    bool json, quiet, terminal, open; /* open: the bar's line is not ended yet */
    char stage[32];
    double shown; /* seconds of the stage when something was last shown; below 0: nothing yet */
    void (*watch)(const struct tern_progress *p, void *user);
    void *watch_user;
} state;

void progress_watch(void (*watch)(const struct tern_progress *p, void *user), void *user)
{
    state.watch = watch;
    state.watch_user = user;
}

void progress_setup(bool json, bool quiet)
{
    const char *term = getenv("TERM");
    state.json = json;
    state.quiet = quiet;
    state.terminal = isatty(STDERR_FILENO) && term && strcmp(term, "dumb");
}

void progress_break(void)
{
    if (state.open)
        fputc('\n', stderr);
    state.open = false;
}

void progress_clear(void)
{
    if (state.open)
        fputs("\r\033[K", stderr);
    fflush(stderr);
    state.open = false;
}

/* "1.52 it/s, 12 s left", or, when the stage is done, the seconds that it took. */
static void pace(const struct tern_progress *p, char *out, size_t size)
{
    if (!p->done || p->seconds <= 0) {
        *out = 0;
        return;
    }
    double each = p->seconds / (double)p->done;
    int n = each < 1 ? snprintf(out, size, ", %.2f it/s", 1 / each) : snprintf(out, size, ", %.2f s/it", each);
    if (p->done < p->total)
        snprintf(out + n, size - (size_t)n, ", %.0f s left", each * (double)(p->total - p->done));
    else
        snprintf(out + n, size - (size_t)n, ", %.1f s", p->seconds);
}

static void draw(const struct tern_progress *p, const char *text)
{
    char bar[BAR + 1];
    int full = p->total > 0 ? (int)(p->done * BAR / p->total) : 0;
    for (int i = 0; i < BAR; i++)
        bar[i] = i < full ? '#' : '.';
    bar[BAR] = 0;
    fprintf(stderr, "\r%-7s [%s] %lld/%lld%s\033[K", p->stage, bar, (long long)p->done, (long long)p->total, text);
    state.open = true;
    if (p->done >= p->total)
        progress_break();
    fflush(stderr);
}

void progress_show(const struct tern_progress *p, void *user)
{
    if (state.watch) {
        state.watch(p, state.watch_user);
        return;
    }
    if (state.json) {
        event_send(json_pack("{s:s, s:s, s:I, s:I, s:f}", "event", "progress", "stage", p->stage, "done", (json_int_t)p->done, "total",
                             (json_int_t)p->total, "seconds", p->seconds));
        return;
    }
    if (state.quiet)
        return;
    if (strncmp(state.stage, p->stage, sizeof(state.stage) - 1)) {
        progress_break();
        snprintf(state.stage, sizeof(state.stage), "%s", p->stage);
        state.shown = -1e9;
    }
    if (!p->done && !state.terminal)
        return; /* the first line comes with the first unit */
    if (p->done < p->total && p->seconds - state.shown < (state.terminal ? DRAW_SECONDS : LINE_SECONDS))
        return;
    state.shown = p->seconds;
    char text[96];
    pace(p, text, sizeof(text));
    if (state.terminal)
        draw(p, text);
    else
        fprintf(stderr, "%s %lld/%lld%s\n", p->stage, (long long)p->done, (long long)p->total, text);
    if (p->done >= p->total)
        state.stage[0] = 0; /* the same stage may come again */
}
