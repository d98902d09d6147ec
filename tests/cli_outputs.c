/* Tests of the command: where files go, and what is left of them when it is stopped. */
#include "cli.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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
    assert_int_equal(symlink("loop", "loop"), 0);
    EXPECT(s, RUN(s, PICTURE, "--profile", "loop"), 1);
    expect_text(s->err, "loop: cannot be written: Too many levels", "a link to itself");
    assert_int_equal(files("."), 6);
    assert_int_equal(files("sub"), 2);
}

int cli_output_tests(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_links_and_pipes),
    };
    return cmocka_run_group_tests_name("cli outputs", tests, cli_setup, cli_teardown);
}
