/* Ctrl-C, and the signals of a closed terminal and of a system that shuts down. The first asks the library to stop, which it does within
 * one op; another one ends the process at once, unless a file is just being written: that takes a moment and leaves no half file. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "command.h"

/* timeout, and shells whose terminal goes, send the same one twice within no time. */
#define APART 0.5

static volatile sig_atomic_t seen, writing; /* seen: how many */
static volatile sig_atomic_t last;          /* the number of the latest */
static struct timespec when;                /* it came; the handler alone uses it, with the other signals blocked */

static volatile sig_atomic_t quiet, terminal; /* standard error is one, where ^C stands in the line */

/* By write alone, as in a handler. An op of a large model takes seconds, in which who hears nothing presses again. */
static void tell_first(void)
{
    const char *text = writing ? "tern: stopping; a file is being written, and a third Ctrl-C ends at once\n"
                               : "tern: stopping after the running op; another Ctrl-C ends at once\n";
    const int kept = errno;
    ssize_t ignored = terminal ? write(STDERR_FILENO, "\n", 1) : 0;
    ignored = write(STDERR_FILENO, text, strlen(text));
    (void)ignored;
    errno = kept;
}

static void on_signal(int number)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (seen && (double)(now.tv_sec - when.tv_sec) + 1e-9 * (double)(now.tv_nsec - when.tv_nsec) < APART)
        return;
    when = now;
    last = number;
    if (seen >= (writing ? 2 : 1)) { /* the third also while a file is written: who reads the pipe that it is may never do so */
        ssize_t ignored = write(STDERR_FILENO, "\n", 1);
        (void)ignored;
        _exit(128 + number);
    }
    if (!seen++ && number == SIGINT && !quiet)
        tell_first();
}

static void catch_one(int number, void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART}, old;
    sigemptyset(&action.sa_mask);
    sigaddset(&action.sa_mask, SIGINT);
    sigaddset(&action.sa_mask, SIGTERM);
    sigaddset(&action.sa_mask, SIGHUP);
    if (number != SIGINT && !sigaction(number, NULL, &old) && old.sa_handler == SIG_IGN) /* nohup */
        return;
    sigaction(number, &action, NULL);
}

/* Of SIGPIPE, and SIGXFSZ of ulimit -f: the write fails, which is told. Not SIG_IGN, which programs that are started would inherit. */
static void on_failed_write(int number) {}

void interrupt_quiet(bool is_quiet) { quiet = is_quiet; }

void interrupt_catch(void)
{
    terminal = isatty(STDERR_FILENO);
    catch_one(SIGINT, on_signal);
    catch_one(SIGTERM, on_signal);
    catch_one(SIGHUP, on_signal);
    catch_one(SIGPIPE, on_failed_write);
    catch_one(SIGXFSZ, on_failed_write);
}

bool interrupt_seen(void) { return seen; }
int interrupt_code(void) { return seen ? 128 + last : CANCELLED; }
void interrupt_hold(bool hold) { writing = hold; }
