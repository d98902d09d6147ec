/* The command tern: finds the subcommand and runs it. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "command.h"

static const struct command *const commands[] = {
    &txt2img_command, &img2img_command, &inpaint_command, &info_command,     &exec_command,        &tokenize_command, &devices_command,
    &synth_command,   &convert_command, &graph_command,   &quantize_command, &conformance_command, &bench_command,
};
#define COMMANDS (sizeof(commands) / sizeof(commands[0]))

static void help(FILE *out)
{
    fprintf(out, "tern %s runs Stable Diffusion.\n\nusage: tern COMMAND [OPTIONS] [ARGUMENTS]\n\n", tern_version());
    for (size_t i = 0; i < COMMANDS; i++)
        fprintf(out, "  %-11s %s\n", commands[i]->name, commands[i]->summary);
    fprintf(out, "\n'tern COMMAND --help' or 'tern help COMMAND' explains a command; 'tern --version' prints the version.\n"
                 "Exit codes: 0 done, 1 failed, 2 wrong usage, 130 cancelled (by SIGTERM 143, by SIGHUP 129).\n"
                 "Ctrl-C stops a job after the running op and leaves no half file; another one ends it at once.\n"
                 "Plans, compiled kernels and what was measured are kept for later runs in the cache folder,\n"
                 "$XDG_CACHE_HOME/tern or else ~/.cache/tern. It may be deleted.\n");
}

static int unknown(const char *name)
{
    char names[256];
    size_t n = 0;
    for (size_t i = 0; i < COMMANDS; i++)
        n += (size_t)snprintf(names + n, sizeof(names) - n, "%s%s", i ? ", " : "", commands[i]->name);
    return usage("unknown command \"%s\"; there are %s", name, names);
}

static const struct command *find(const char *name)
{
    for (size_t i = 0; i < COMMANDS; i++)
        if (!strcmp(name, commands[i]->name))
            return commands[i];
    return NULL;
}

/* "tern help", or "tern help COMMAND". */
static int run_help(const char *name)
{
    const struct command *command = name ? find(name) : NULL;
    if (name && !command)
        return unknown(name);
    if (command)
        options_help(command);
    else
        help(stdout);
    return DONE;
}

static int run(int argc, char **argv)
{
    if (argc < 2) {
        help(stderr);
        return USAGE;
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help"))
        return run_help(argv[1][0] == 'h' ? argv[2] : NULL);
    if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V")) {
        printf("tern %s\n", tern_version());
        return DONE;
    }
    const struct command *command = find(argv[1]);
    if (!command)
        return unknown(argv[1]);
    message_setup(argv[1], false);
    return command->run(command, argc - 1, argv + 1);
}

/* Where standard input, output or error is closed the next files that are opened would take its number, and events and messages would go
 * into a checkpoint. Opened for reading: what is written is lost and told, as before. */
static void hold_places(void)
{
    int fd;
    while ((fd = open("/dev/null", O_RDONLY)) >= 0 && fd <= STDERR_FILENO)
        ;
    if (fd >= 0)
        close(fd);
}

int main(int argc, char **argv)
{
    hold_places();
    int code = run(argc, argv);
    const int reason = output_flush();
    if ((reason || ferror(stdout)) && (code == DONE || (code == CANCELLED && !interrupt_seen()))) { /* jobs are cancelled for it */
        fprintf(stderr, "tern: standard output could not be written%s%s\n", reason ? ": " : "", reason ? strerror(reason) : "");
        code = FAILED;
    }
    return code == CANCELLED ? interrupt_code() : code;
}
