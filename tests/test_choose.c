/* Lists of devices and "auto": who is taken, who stands behind, what is measured and kept, and who takes over a job. The devices are those
 * of choose_backends.c. */
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tern/conformance.h>

#include "choose_backends.h"
#include "cli.h"
#include "core/context.h"
#include "core/line.h"
#include "support.h"

struct log {
    char text[4096];
};

static void keep_log(enum tern_log_level level, const char *message, void *user)
{
    struct log *l = user;
    size_t n = strlen(l->text);
    snprintf(l->text + n, sizeof(l->text) - n, "%d %s\n", level, message);
}

static struct tern_context *open_spec(struct state *s, const char *device, struct log *log)
{
    memset(log, 0, sizeof(*log));
    return tern_context_create(&(struct tern_context_params){
        .device = device, .threads = 1, .cache_dir = s->folder, .log_level = TERN_LOG_INFO, .log = keep_log, .user = log});
}

static void expect_device(struct tern_context *ctx, const char *name, const char *behind)
{
    assert_non_null(ctx);
    assert_string_equal(tern_default_device(ctx)->name, name);
    char *found = tern_context_devices_behind(ctx);
    assert_string_equal(found ? found : "nobody", behind);
    tern_free_text(ctx, found);
}

/* The name of the only file of the line in the cache. */
static void line_path(struct state *s, char *out, size_t size)
{
    snprintf(out, size, "%s/devices", s->folder);
    DIR *d = opendir(out);
    int n = 0;
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));)
        if (e->d_name[0] != '.') {
            snprintf(out, size, "%s/devices/%s", s->folder, e->d_name);
            n++;
        }
    closedir(d);
    assert_int_equal(n, 1);
}

static int measured(void) { return choose_launches[CHOOSE_SLOW] + choose_launches[CHOOSE_QUICK] + choose_launches[CHOOSE_LOST]; }

static void the_first_of_a_list_that_works_is_taken(void **state)
{
    struct log log;
    struct tern_context *ctx = open_spec(*state, "absent,slow:0,cpu", &log);
    expect_device(ctx, "slow", "cpu");
    expect_text(log.text, "2 slow:0 is used: absent: libabsent.so.1 is not there", "log");
    tern_context_destroy(&ctx);
    ctx = open_spec(*state, "cpu,slow", &log);
    expect_device(ctx, "cpu", "slow");
    assert_ptr_equal(ctx->device, ctx->host);
    tern_context_destroy(&ctx);
    ctx = open_spec(*state, "slow", &log);
    expect_device(ctx, "slow", "nobody");
    tern_context_destroy(&ctx);
}

/* Every allocation fails once, that of the list behind a CPU in front, too: the host's device is let go of once. */
static void a_list_can_run_out_of_memory(void **state)
{
    struct state *s = *state;
    bool done = false;
    for (long n = 1; !done; n++) {
        struct support_allocator memory = {.fail_at = n};
        const struct tern_context_params params = {
            .device = "cpu,slow", .threads = 1, .cache_dir = s->folder, .allocator = support_failing(&memory)};
        struct tern_context *ctx = tern_context_create(&params);
        done = memory.count < n;
        assert_true(ctx ? done : strstr(tern_create_error(), "out of memory") != NULL);
        tern_context_destroy(&ctx);
        assert_int_equal(memory.live, 0);
        assert_true(n < 1000);
    }
}

static void a_list_without_one_that_works_tells_every_reason(void **state)
{
    struct log log;
    assert_null(open_spec(*state, "absent,tpu,slow:7", &log));
    expect_text(tern_create_error(), "libabsent.so.1 is not there; device \"tpu\" is not known; this build has: cpu", "error");
    expect_text(tern_create_error(), "slow: device 7 was asked for", "error");
    assert_null(open_spec(*state, ",", &log));
    expect_text(tern_create_error(), "device \"\" is not known", "error");
}

/* The devices of the context are those n, the first one first and the others by what the line in the cache says was measured: which of
 * them that favours is the machine's business. */
static void expect_line(struct state *s, struct tern_context *ctx, const char *const *names, int n)
{
    char path[512], text[512] = "", behind[512] = "", name[32], *rest;
    double flops, last = INFINITY;
    int used, lines = 0;
    line_path(s, path, sizeof(path));
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_true(fread(text, 1, sizeof(text) - 1, file) > 0);
    fclose(file);
    for (rest = text; sscanf(rest, "%31s %lf\n%n", name, &flops, &used) == 2; rest += used) {
        assert_true(flops <= last);
        last = flops;
        bool known = false;
        for (int i = 0; i < n; i++)
            known |= (lines ? i > 0 : i == 0) && !strcmp(name, names[i]) && !strstr(behind, name);
        assert_true(known);
        if (lines++)
            snprintf(behind + strlen(behind), sizeof(behind) - strlen(behind), "%s%s", *behind ? "," : "", name);
    }
    assert_int_equal(*rest, 0);
    assert_int_equal(lines, n);
    assert_string_equal(ctx->behind, behind);
}

/* quick computes nothing: whatever the machine, it comes first. */
static void auto_takes_the_fastest_and_measures_once(void **state)
{
    struct log log;
    memset(choose_launches, 0, sizeof(choose_launches));
    struct tern_context *ctx = open_spec(*state, "auto", &log);
    assert_non_null(ctx);
    assert_string_equal(tern_default_device(ctx)->name, "quick");
    expect_line(*state, ctx, (const char *const[]){"quick:0", "cpu", "lost:0", "slow:0"}, 4);
    tern_context_destroy(&ctx);
    assert_true(choose_launches[CHOOSE_SLOW] > 0 && choose_launches[CHOOSE_QUICK] > 0 && choose_launches[CHOOSE_LOST] > 0);
    assert_int_equal(choose_launches[CHOOSE_SOFT], 0); /* the processor again */
    int before = measured();
    ctx = open_spec(*state, "auto", &log);
    assert_string_equal(tern_default_device(ctx)->name, "quick");
    tern_context_destroy(&ctx);
    assert_int_equal(measured(), before);
}

/* Programs of other locales share the line. */
static void lines_have_a_point_in_every_locale(void **state)
{
    struct state *s = *state;
    struct log log;
    support_point(s->folder, ",");
    for (int i = 0; i < 2; i++) {
        const int before = measured();
        struct tern_context *ctx = open_spec(s, "auto", &log);
        support_point(s->folder, ".");
        assert_non_null(ctx);
        assert_true(i ? measured() == before : measured() > before);
        tern_context_destroy(&ctx);
    }
}

static void damaged_lines_are_measured_again(void **state)
{
    static const char *const damage[] = {"",     "quick:0 1e9\n", "cpu 1e9\nquick:0", "cpu -1\n", "cpu nan\n", "cpu 1e9\nQ 3\n",
                                         "\n\n", "cpu 1"};
    struct log log;
    struct tern_context *ctx = open_spec(*state, "auto", &log);
    char path[512];
    tern_context_destroy(&ctx);
    line_path(*state, path, sizeof(path));
    for (size_t i = 0; i < sizeof(damage) / sizeof(damage[0]); i++) {
        write_file(path, damage[i], strlen(damage[i]));
        int before = measured();
        ctx = open_spec(*state, "auto", &log);
        assert_non_null(ctx);
        assert_string_equal(tern_default_device(ctx)->name, "quick");
        assert_true(measured() > before);
        tern_context_destroy(&ctx);
    }
    /* and one that is whole counts as it is, though it says otherwise */
    write_file(path, "cpu 3e9\nslow:0 2e9\n", strlen("cpu 3e9\nslow:0 2e9\n"));
    ctx = open_spec(*state, "auto", &log);
    expect_device(ctx, "cpu", "slow:0");
    tern_context_destroy(&ctx);
}

/* What changes the devices, or may be what one of them lacked, changes the key. */
static void other_limits_are_another_line(void **state)
{
    static const char *const names[] = {NULL, "CUDA_VISIBLE_DEVICES", "TERN_CUDNN_LIBRARY"};
    struct state *s = *state;
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        int before = measured();
        if (names[i])
            setenv(names[i], "none", 1);
        struct log log;
        struct tern_context *ctx = open_spec(s, "auto", &log);
        if (names[i])
            unsetenv(names[i]);
        tern_context_destroy(&ctx);
        assert_true(measured() > before);
    }
    int before = measured();
    struct tern_context *ctx = tern_context_create(
        &(struct tern_context_params){.device = "auto", .threads = 1, .cache_dir = s->folder, .budget = (size_t)1 << 30});
    tern_context_destroy(&ctx);
    assert_true(measured() > before);
}

static void a_device_that_fails_to_be_measured_is_passed_by(void **state)
{
    struct log log;
    setenv("TERN_TEST_LOST_AT", "1", 1);
    struct tern_context *ctx = open_spec(*state, "auto", &log);
    unsetenv("TERN_TEST_LOST_AT");
    assert_non_null(ctx);
    expect_line(*state, ctx, (const char *const[]){"quick:0", "cpu", "slow:0"}, 3);
    expect_text(log.text, "lost:0 is passed by: lost: the device fell off the bus", "log");
    tern_context_destroy(&ctx);
}

/* A driver with two devices, of which the first is not good enough. */
static void a_device_that_is_refused_hides_no_other(void **state)
{
    struct log log;
    setenv("TERN_TEST_REFUSED", "1", 1);
    struct tern_context *ctx = open_spec(*state, "auto", &log);
    assert_non_null(ctx);
    expect_line(*state, ctx, (const char *const[]){"quick:0", "cpu", "lost:0", "slow:1"}, 4);
    char *text = tern_devices_describe(ctx);
    unsetenv("TERN_TEST_REFUSED");
    expect_text(text, "slow   not available: slow: device 0 was asked for", "devices");
    expect_text(text, "\nslow:1 ", "devices");
    assert_null(strstr(text, "slow:2"));
    assert_null(strstr(text, "absent:1"));
    tern_free_text(ctx, text);
    tern_context_destroy(&ctx);
}

/* What opens a context like another one, as a suite of conformance does, opens the same of several devices. */
static void a_context_like_another_has_its_device(void **state)
{
    static const char *const specs[] = {"slow:1", "absent,slow:1,cpu"};
    setenv("TERN_TEST_REFUSED", "1", 1);
    for (int i = 0; i < 2; i++) {
        struct log log;
        struct tern_context *ctx = open_spec(*state, specs[i], &log);
        assert_non_null(ctx);
        assert_string_equal(ctx->params.device, "slow:1");
        struct tern_conformance *c = tern_conformance_create(ctx, &(struct tern_conformance_params){.stages = "pictures"});
        if (!c)
            fail_msg("%s", tern_error(ctx));
        assert_string_equal(tern_conformance_facts(c).device, "slow");
        tern_conformance_destroy(&c);
        tern_context_destroy(&ctx);
    }
    unsetenv("TERN_TEST_REFUSED");
}

static bool now(void *user) { return true; }

static void measuring_can_be_cancelled(void **state)
{
    struct state *s = *state;
    assert_null(tern_context_create(&(struct tern_context_params){.device = "auto", .threads = 1, .cache_dir = s->folder, .cancel = now}));
    expect_text(tern_create_error(), "cancelled", "error");
    char folder[256];
    snprintf(folder, sizeof(folder), "%s/devices", s->folder);
    assert_null(opendir(folder)); /* nothing was kept */
}

/* What has no memory now may have some the next time. */
static void a_lack_of_memory_is_not_kept(void **state)
{
    struct state *s = *state;
    struct log log;
    char path[512];
    setenv("TERN_TEST_NO_ROOM", "1", 1);
    struct tern_context *ctx = open_spec(s, "auto", &log);
    assert_non_null(ctx);
    expect_text(log.text, "slow:0 is passed by: slow: no room", "log");
    tern_context_destroy(&ctx);
    unsetenv("TERN_TEST_NO_ROOM");
    snprintf(path, sizeof(path), "%s/devices", s->folder);
    assert_null(opendir(path));
    ctx = open_spec(s, "auto", &log);
    assert_non_null(strstr(ctx->behind, "slow:0"));
    line_path(s, path, sizeof(path));
    tern_context_destroy(&ctx);
}

/* ---- jobs; $TERN_TOOL is the command with these devices */

#define JOB "txt2img", MODEL, "-p", "a cat", "-W", "64", "-H", "64", "--steps", "2", "--seed", "3", "--threads", "1"

static void the_next_device_takes_a_job_over(void **state)
{
    struct state *s = *state;
    EXPECT(s, RUN(s, JOB, "-o", "cpu.png", "--device", "cpu"), 0);
    setenv("TERN_TEST_LOST_AT", "40", 1);
    EXPECT(s, RUN(s, JOB, "-o", "over.png", "--device", "lost,cpu"), 0);
    expect_text(s->err, "lost: the device fell off the bus", "standard error");
    expect_text(s->err, "the job starts again on: cpu", "standard error");
    assert_true(same_bytes("cpu.png", "over.png"));
    EXPECT(s, RUN(s, JOB, "-o", "none.png", "--device", "lost"), 1); /* nobody stands behind it */
    EXPECT(s, RUN(s, JOB, "-o", "none.png", "--device", "lost,lost"), 1);
    unsetenv("TERN_TEST_LOST_AT");
    assert_int_equal(file_size("none.png"), 0);
    EXPECT(s, RUN(s, JOB, "-o", "whole.png", "--device", "lost,cpu"), 0);
    assert_null(strstr(s->err, "starts again"));
}

/* The first job on a machine, while its devices are measured: the code of an interrupt, and no word of an option that nobody gave. */
static void measuring_can_be_interrupted(void **state)
{
    struct state *s = *state;
    char *const cache = strdup(getenv("XDG_CACHE_HOME"));
    setenv("TERN_TEST_INTERRUPT", "1", 1);
    setenv("XDG_CACHE_HOME", s->folder, 1); /* where nothing was measured */
    EXPECT(s, RUN(s, "txt2img", MODEL, "-p", "a cat", "--steps", "1", "-W", "64", "-H", "64"), 130);
    unsetenv("TERN_TEST_INTERRUPT");
    setenv("XDG_CACHE_HOME", cache, 1);
    free(cache);
    assert_string_equal(s->err, "tern: stopping after the running op; another Ctrl-C ends at once\ntern txt2img: cancelled\n");
}

static void devices_are_listed_with_what_auto_takes(void **state)
{
    struct state *s = *state;
    EXPECT(s, RUN(s, "devices"), 0);
    expect_text(s->out, "absent not available: absent: libabsent.so.1 is not there", "standard output");
    expect_text(s->out, "; runs on the processor: auto passes it by", "standard output");
    expect_text(s->out, "\nauto   quick:0 (", "standard output");
    expect_text(s->out, "), then slow:0 (", "standard output");
    assert_null(strstr(s->out, "quick:1"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_first_of_a_list_that_works_is_taken),
        TEST(a_list_can_run_out_of_memory),
        TEST(a_list_without_one_that_works_tells_every_reason),
        TEST(auto_takes_the_fastest_and_measures_once),
        TEST(lines_have_a_point_in_every_locale),
        TEST(damaged_lines_are_measured_again),
        TEST(other_limits_are_another_line),
        TEST(a_device_that_fails_to_be_measured_is_passed_by),
        TEST(a_device_that_is_refused_hides_no_other),
        TEST(a_context_like_another_has_its_device),
        TEST(measuring_can_be_cancelled),
        TEST(a_lack_of_memory_is_not_kept),
        TEST(measuring_can_be_interrupted),
        TEST(the_next_device_takes_a_job_over),
        TEST(devices_are_listed_with_what_auto_takes),
    };
    return cmocka_run_group_tests(tests, cli_setup, cli_teardown);
}
