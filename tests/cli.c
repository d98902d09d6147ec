/* The processes and folders behind the tests of the command. */
#include "cli.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST_ARGS 48

int cli_setup(void **state)
{
    struct state *s = calloc(1, sizeof(*s));
    s->tool = getenv("TERN_TOOL");
    *state = s;
    return s->tool ? 0 : -1;
}

int cli_teardown(void **state)
{
    free(*state);
    return 0;
}

int cli_new_folder(void **state)
{
    struct state *s = *state;
    strcpy(s->folder, "/tmp/tern-cli-XXXXXX");
    return mkdtemp(s->folder) ? chdir(s->folder) : -1;
}

int cli_remove_folder(void **state)
{
    struct state *s = *state;
    char command[128];
    snprintf(command, sizeof(command), "rm -rf %s", s->folder);
    return chdir("/") || system(command);
}

void slurp(const char *path, char *out, size_t size)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    out[fread(out, 1, size - 1, f)] = 0;
    fclose(f);
    unlink(path);
}

pid_t cli_start(struct state *s, const char *const *args)
{
    char *argv[MOST_ARGS + 2] = {(char *)(uintptr_t)s->tool};
    for (int i = 0; args[i]; i++) {
        assert_true(i < MOST_ARGS);
        argv[i + 1] = (char *)(uintptr_t)args[i];
    }
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid)
        return pid;
    int out = open(".stdout", O_WRONLY | O_CREAT | O_TRUNC, 0600), err = open(".stderr", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    if (s->file_limit) /* as on a full disk, write() fails then; the signal that comes with it ends nothing */
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){s->file_limit, s->file_limit});
    if (s->space_limit)
        setrlimit(RLIMIT_AS, &(struct rlimit){s->space_limit, s->space_limit});
    execv(s->tool, argv);
    _exit(99);
}

int cli_finish(struct state *s, pid_t pid)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    slurp(".stdout", s->out, sizeof(s->out));
    slurp(".stderr", s->err, sizeof(s->err));
    s->file_limit = s->space_limit = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

int cli_run_line(struct state *s, const char *line)
{
    char copy[1024];
    const char *args[MOST_ARGS + 1];
    int n = 0;
    snprintf(copy, sizeof(copy), "%s", line);
    for (char *rest = NULL, *word = strtok_r(copy, " ", &rest); word && n < MOST_ARGS; word = strtok_r(NULL, " ", &rest))
        args[n++] = strcmp(word, "_") ? word : "";
    args[n] = NULL;
    return cli_finish(s, cli_start(s, args));
}

void expect_text(const char *text, const char *part, const char *where)
{
    if (!strstr(text, part))
        fail_msg("%s: \"%s\" is missing in: %s", where, part, text);
}

int files(const char *folder)
{
    int n = 0;
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (struct dirent *e = readdir(d); e; e = readdir(d))
        n += strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
    closedir(d);
    return n;
}

void write_file(const char *path, const void *data, size_t size)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, size, f), size);
    fclose(f);
}

size_t file_size(const char *path)
{
    struct stat st;
    return stat(path, &st) ? 0 : (size_t)st.st_size;
}

bool same_bytes(const char *a, const char *b)
{
    size_t n = file_size(a);
    if (!n || n != file_size(b))
        return false;
    char *x = malloc(n + 1), *y = malloc(n + 1);
    for (int i = 0; i < 2; i++) {
        FILE *f = fopen(i ? b : a, "rb");
        assert_int_equal(fread(i ? y : x, 1, n, f), n);
        fclose(f);
    }
    bool same = !memcmp(x, y, n);
    free(x);
    free(y);
    return same;
}

bool has_text(const char *path, const char *part)
{
    char text[4096] = "";
    FILE *f = fopen(path, "rb");
    if (!f)
        return false;
    text[fread(text, 1, sizeof(text) - 1, f)] = 0;
    fclose(f);
    return strstr(text, part) != NULL;
}
