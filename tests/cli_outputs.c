/* Tests of the command: where files go, and what is left of them when it is stopped. */
#include "cli.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support.h"

#define PICTURE "txt2img", MODEL, "-W", "32", "-H", "32", "--steps", "1", "--seed", "3", "-q", "-p", "x"

static mode_t kind_of(const char *path)
{
    struct stat st;
    assert_int_equal(lstat(path, &st), 0);
    return st.st_mode & S_IFMT;
}

/* Of the library and of the command: what a link leads to is written, pipes are written into, and both stay. */
static void test_links_and_pipes(void **state)
{
    struct state *s = *state;
    static char text[1 << 16];
    assert_int_equal(mkdir("sub", 0700) || symlink("sub/latents", "l.safetensors") || symlink("sub/profile", "p.json"), 0);
    EXPECT(s, RUN(s, PICTURE, "--save-latents", "l.safetensors", "--profile", "p.json"), 0);
    assert_true(file_size("sub/latents") > 100 && file_size("sub/profile") > 1000);
    assert_int_equal(kind_of("l.safetensors"), S_IFLNK);
    assert_int_equal(kind_of("p.json"), S_IFLNK);
    assert_int_equal(chmod("sub/profile", 0604), 0);
    EXPECT(s, RUN(s, PICTURE, "--profile", "p.json"), 0);
    struct stat st;
    assert_int_equal(stat("p.json", &st), 0);
    assert_int_equal(st.st_mode & 0777, 0604); /* its own mode stays */
    assert_int_equal(mkfifo("pipe", 0600), 0);
    int reader = open("pipe", O_RDONLY | O_NONBLOCK);
    EXPECT(s, RUN(s, PICTURE, "--save-latents", "pipe"), 0);
    assert_int_equal(read(reader, text, sizeof(text)), file_size("sub/latents"));
    EXPECT(s, RUN(s, "graph", MODEL, "vae_decoder", "--svg", "pipe", "-W", "32", "-H", "32"), 0);
    ssize_t n = read(reader, text, sizeof(text) - 1);
    assert_true(n > 1000);
    text[n] = 0;
    expect_text(text, "<svg", "--svg");
    close(reader);
    assert_int_equal(kind_of("pipe"), S_IFIFO);
    assert_int_equal(unlink("sub/latents") || symlink("sub", "folder"), 0); /* two names of a file that is not there */
    EXPECT(s, RUN(s, PICTURE, "--save-latents", "l.safetensors", "--profile", "folder/latents"), 2);
    expect_text(s->err, "two outputs cannot have one name", "a link and a folder's");
    EXPECT(s, RUN(s, PICTURE, "--save-latents", "l.safetensors", "--profile", "latents"), 0); /* one name in two folders */
    assert_true(file_size("sub/latents") > 100 && file_size("latents") > 1000);
    assert_int_equal(unlink("latents") || unlink("folder"), 0);
    assert_int_equal(symlink("loop", "loop"), 0);
    EXPECT(s, RUN(s, PICTURE, "--profile", "loop"), 1);
    expect_text(s->err, "loop: cannot be written: Too many levels", "a link to itself");
    assert_int_equal(files("."), 6);
    assert_int_equal(files("sub"), 2);
}

/* Another user's files, which may be written and, as in /tmp, not be replaced, get what is written; where that may not be the work does not
 * begin. */
static void test_files_of_others(void **state)
{
    struct state *s = *state;
    write_file("p.png", "old", 3);
    write_file("g.svg", "old", 3);
    write_file("kept.png", "old", 3);
    assert_int_equal(chmod(".", 01777) | chmod("p.png", 0666) | chmod("g.svg", 0666) | chmod("kept.png", 0644), 0);
    if (geteuid() || setresuid(1, 1, 0)) {
        print_message("skipped: only root becomes another user\n");
        skip();
    }
    const bool may = !access(s->tool, X_OK) && !access(MODEL, R_OK);
    const int picture = may ? RUN(s, PICTURE, "-o", "p.png") : 0, svg = may ? RUN(s, "graph", MODEL, "unet", "--svg", "g.svg", "-q") : 0,
              kept = may ? RUN(s, PICTURE, "-o", "kept.png") : 1;
    assert_int_equal(setresuid(0, 0, 0), 0);
    if (!may)
        skip();
    assert_int_equal(picture, 0);
    assert_int_equal(svg, 0);
    assert_int_equal(kept, 1);
    expect_text(s->err, "kept.png: cannot be written: Permission denied", "before the work");
    assert_true(has_text("p.png", "PNG") && has_text("g.svg", "<svg"));
    assert_int_equal(file_size("kept.png"), 3);
    assert_int_equal(files("."), 3);
}

/* Until the file holds the text, which the process writes. */
static void wait_for(const char *path, const char *text)
{
    for (int i = 0; i < 6000 && !(access(path, R_OK) == 0 && has_text(path, text)); i++)
        usleep(5000);
    if (!has_text(path, text))
        fail_msg("%s: \"%s\" does not come", path, text);
}

#define SYNTH "synth", "sd15", "model.safetensors", "--single-file", "--json"
#define LONG "txt2img", MODEL, "-p", "x", "--steps", "1000", "--sampler", "euler", "-W", "64", "-H", "64", "--json"

/* One that comes twice at once, as from timeout, is one. */
static void test_signals_leave_nothing(void **state)
{
    static const struct {
        int number, times, code;
        bool synth;
    } rows[] = {{SIGTERM, 1, 143, true}, {SIGHUP, 1, 129, true}, {SIGTERM, 5, 143, true}, {SIGINT, 5, 130, true}, {SIGTERM, 1, 143, false}};
    struct state *s = *state;
    void (*before)(int) = signal(SIGHUP, SIG_DFL); /* of a run that nohup began, the command would take no notice */
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        pid_t pid = cli_start(s, rows[i].synth ? (const char *const[]){SYNTH, NULL} : (const char *const[]){LONG, NULL});
        wait_for(".stdout", "\"done\":1,");
        for (int k = 0; k < rows[i].times; k++) {
            kill(pid, rows[i].number);
            usleep(1000);
        }
        EXPECT(s, cli_finish(s, pid), rows[i].code);
        expect_text(s->err, "cancelled", "a signal");
        assert_int_equal(files("."), 0);
    }
    signal(SIGHUP, before);
}

/* The first Ctrl-C says that the job stops, and what a second one does; not with -q, and no other signal does. */
static void test_the_first_ctrl_c_is_answered(void **state)
{
    static const struct {
        int number;
        const char *quiet;
        bool answered;
    } rows[] = {{SIGINT, NULL, true}, {SIGINT, "-q", false}, {SIGTERM, NULL, false}};
    struct state *s = *state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        pid_t pid = cli_start(s, (const char *const[]){LONG, rows[i].quiet, NULL});
        wait_for(".stdout", "\"sample\",\"done\":1,");
        kill(pid, rows[i].number);
        EXPECT(s, cli_finish(s, pid), 128 + rows[i].number);
        expect_text(s->err, "cancelled", "a signal");
        assert_int_equal(strstr(s->err, "tern: stopping after the running op; another Ctrl-C ends at once\n") != NULL, rows[i].answered);
    }
}

static void test_nohup(void **state)
{
    struct state *s = *state;
    void (*before)(int) = signal(SIGHUP, SIG_IGN);
    pid_t pid = cli_start(s, (const char *const[]){LONG, NULL});
    signal(SIGHUP, before);
    wait_for(".stdout", "\"sample\",\"done\":1,");
    kill(pid, SIGHUP);
    wait_for(".stdout", "\"sample\",\"done\":20,");
    kill(pid, SIGTERM);
    EXPECT(s, cli_finish(s, pid), 143);
}

/* A pipe that nobody reads: the job hangs while it writes its output, where the second signal is not enough. */
static void test_third_signal_ends(void **state)
{
    struct state *s = *state;
    assert_int_equal(mkfifo("pipe", 0600), 0);
    pid_t pid = cli_start(s, (const char *const[]){PICTURE, "--save-latents", "pipe", "-o", "o.png", NULL});
    wait_for("o.png", "PNG");
    for (int i = 0; i < 3; i++) {
        kill(pid, SIGTERM);
        usleep(600000);
    }
    EXPECT(s, cli_finish(s, pid), 143);
    assert_int_equal(files("."), 2);
}

static void test_lost_reader(void **state)
{
    struct state *s = *state;
    char command[512];
    snprintf(command, sizeof(command),
             "{ '%s' synth sd15 model.safetensors --single-file --json 2> .err; echo $? > .code; } | head -n 1 > .head", s->tool);
    assert_int_equal(system(command), 0);
    assert_true(has_text(".code", "1\n"));
    assert_true(has_text(".head", "\"done\":1,"));
    slurp(".err", s->err, sizeof(s->err));
    expect_text(s->err, "tern: standard output could not be written: Broken pipe\n", "head -n 1");
    assert_null(strstr(s->err, "cancelled"));
    assert_int_equal(files("."), 2);
}

/* What a killed process of the same number left is neither taken nor in the way. */
static void test_names_left_behind(void **state)
{
    struct state *s = *state;
    char command[512];
    snprintf(command, sizeof(command), "echo left > a.svg.$$-0; exec '%s' graph '%s' vae_decoder --svg a.svg > .out", s->tool, MODEL);
    assert_int_equal(system(command), 0);
    assert_true(has_text("a.svg", "<svg"));
    assert_int_equal(files("."), 3); /* with .out */
}

/* A folder is new, and whole or not there. */
static void test_synth_folders(void **state)
{
    struct state *s = *state;
    assert_int_equal(mkdir("empty", 0700) || mkdir("model", 0700), 0);
    write_file("model/model_index.json", "{}", 2);
    EXPECT(s, RUN(s, "synth", "sd15", "model"), 2);
    expect_text(s->err, "model: expected the name of a new or empty folder, found one that is not empty: it has ", "synth");
    assert_int_equal(files("model"), 1);
    assert_int_equal(file_size("model/model_index.json"), 2);
    static const char *const names[] = {"new", "empty/"};
    for (int i = 0; i < 2; i++) {
        pid_t pid = cli_start(s, (const char *const[]){"synth", "sd15", names[i], "--json", NULL});
        wait_for(".stdout", "\"done\":1,");
        assert_int_equal(files("."), i ? 4 : 5); /* with .stdout and .stderr */
        assert_int_equal(files("empty"), i);
        kill(pid, SIGINT);
        EXPECT(s, cli_finish(s, pid), 130);
        assert_int_equal(files("."), 2);
        assert_int_equal(files("empty"), 0);
    }
    s->file_limit = 100000;
    EXPECT(s, RUN(s, "synth", "sd15", "new"), 1);
    assert_int_equal(files("."), 2);
}

/* With too little memory for a checkpoint to be loaded it is not told to be a file of weights. */
static void test_info_without_memory(void **state)
{
    struct state *s = *state;
    int code = 1, without = 0;
    support_skip_watched();
    EXPECT(s, RUN(s, "convert", "-q", TERN_TEST_DATA "/formats/mini", "a.safetensors", "--single-file"), 0);
    for (rlim_t space = 8 << 20; code && space < 256 << 20; space += 512 << 10) {
        s->space_limit = space;
        code = RUN(s, "info", "a.safetensors");
        if (!code)
            expect_text(s->out, "UNet2DConditionModel", "info");
        without += code == 1 && strstr(s->err, "out of memory");
    }
    assert_true(!code && without);
}

int cli_output_tests(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_links_and_pipes), TEST(test_signals_leave_nothing), TEST(test_the_first_ctrl_c_is_answered),
        TEST(test_nohup),           TEST(test_third_signal_ends),     TEST(test_lost_reader),
        TEST(test_synth_folders),   TEST(test_names_left_behind),     TEST(test_info_without_memory),
        TEST(test_files_of_others),
    };
    return cmocka_run_group_tests_name("cli outputs", tests, cli_setup, cli_teardown);
}
