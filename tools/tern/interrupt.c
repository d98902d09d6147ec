/* Ctrl-C. The first asks the library to stop, which it does within one op; the second ends the process at once, unless a
 * file is just being written: that takes a moment and leaves no half file. */
#include <signal.h>
#include <unistd.h>

#include "command.h"

static volatile sig_atomic_t seen, writing;

static void on_signal(int number)
{
    if (seen && !writing) {
        ssize_t ignored = write(STDERR_FILENO, "\n", 1);
        (void)ignored;
        _exit(CANCELLED);
    }
    seen = 1;
}

void interrupt_catch(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
}

bool interrupt_seen(void) { return seen; }
void interrupt_hold(bool hold) { writing = hold; }
