/* Output files and folders: what is written whole or not at all, what takes its place, what is refused. */
#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/context.h"
#include "core/files.h"
#include "support.h"
#include "weights_help.h"

/* Names in the fixture's folder. */
static int count_files(const struct fixture *f)
{
    char command[160];
    int n = -1;
    snprintf(command, sizeof(command), "ls -A %s | wc -l", f->folder);
    FILE *p = popen(command, "r");
    assert_non_null(p);
    assert_int_equal(fscanf(p, "%d", &n), 1);
    pclose(p);
    return n;
}

static void a_file_appears_when_it_is_complete(void **state)
{
    struct fixture *f = *state;
    help_write(help_path(f, "out"), "old");
    struct tern_writer *w = tern_writer_open(f->ctx, f->path);
    assert_non_null(w);
    fputs("new and longer", w->file);
    fflush(w->file);
    help_holds(f->path, "old");
    assert_int_equal(count_files(f), 2);
    assert_int_equal(tern_writer_commit(&w), TERN_OK);
    assert_null(w);
    help_holds(f->path, "new and longer");
    assert_int_equal(count_files(f), 1);
    w = tern_writer_open(f->ctx, f->path);
    fputs("never", w->file);
    tern_writer_discard(&w);
    tern_writer_discard(&w);
    help_holds(f->path, "new and longer");
    assert_int_equal(count_files(f), 1);
}

static void a_new_file_has_the_usual_mode(void **state)
{
    struct fixture *f = *state;
    struct stat st;
    mode_t old = umask(027);
    struct tern_writer *w = tern_writer_open(f->ctx, help_path(f, "out"));
    assert_int_equal(tern_writer_commit(&w), TERN_OK);
    umask(old);
    assert_int_equal(stat(f->path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0640);
}

/* Killed in the middle of writing: the old file is as it was. */
static void a_killed_writer_leaves_the_old_file(void **state)
{
    struct fixture *f = *state;
    help_write(help_path(f, "out"), "old");
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        struct tern_writer *w = tern_writer_open(f->ctx, f->path);
        for (int i = 0; w && i < 100000; i++)
            fputs("half of the new file ", w->file);
        if (w)
            fflush(w->file);
        kill(getpid(), SIGKILL);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    help_holds(f->path, "old");
}

/* Those of writes that failed, which would have ended the program. */
static void signals_come_again(void)
{
    sigset_t mask, pending;
    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    sigpending(&pending);
    assert_false(sigismember(&mask, SIGPIPE) || sigismember(&mask, SIGXFSZ));
    assert_false(sigismember(&pending, SIGPIPE) || sigismember(&pending, SIGXFSZ));
}

/* A full disk, as the limit on a file's size shows it: found by commit, nothing is left, the old file stays. */
static void a_full_disk_leaves_the_old_file(void **state)
{
    struct fixture *f = *state;
    struct rlimit old, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = (struct rlimit){4096, old.rlim_max};
    help_write(help_path(f, "out"), "old");
    for (size_t size = 4097; size < 100000; size *= 3) { /* within stdio's buffer, and beyond it */
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        struct tern_writer *w = tern_writer_open(f->ctx, f->path);
        for (size_t i = 0; i < size; i++)
            putc('x', w->file);
        enum tern_status st = tern_writer_commit(&w);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
        assert_int_equal(st, TERN_E_IO);
        support_error(f->ctx, TERN_E_IO, "out: could not be written: ");
        help_holds(f->path, "old");
        assert_int_equal(count_files(f), 1);
    }
    signals_come_again();
}

static void a_pipe_without_a_reader_is_an_error(void **state)
{
    struct fixture *f = *state;
    char zeros[1 << 14] = {0};
    assert_int_equal(mkfifo(help_path(f, "pipe"), 0600), 0);
    const int reader = open(f->path, O_RDONLY | O_NONBLOCK);
    struct tern_writer *w = tern_writer_open(f->ctx, f->path), *other = tern_writer_open(f->ctx, f->path);
    assert_true(w && other);
    close(reader);
    for (int i = 0; i < 8; i++)
        fwrite(zeros, 1, sizeof(zeros), w->file);
    assert_int_equal(tern_writer_commit(&w), TERN_E_IO);
    support_error(f->ctx, TERN_E_IO, "pipe: could not be written: Broken pipe");
    tern_writer_discard(&other);
    signals_come_again();
}

/* The same of whole weight files and pictures. */
static void half_written_products_vanish(void **state)
{
    struct fixture *f = *state;
    struct rlimit old, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = (struct rlimit){1000, old.rlim_max};
    struct tern_weights *w = tern_weights_create(f->ctx);
    tern_tensor *t = tern_tensor_create(f->ctx, TERN_F32, 1, (const int64_t[]){10000}, NULL);
    tern_weights_add(w, "x", t);
    tern_tensor_unref(&t);
    char bytes[10000] = {0};
    struct tern_folder folder;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(tern_folder_open(&folder, f->ctx, help_path(f, "folder")), TERN_OK);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    enum tern_status st = tern_folder_write(&folder, folder.root, "x.json", bytes, sizeof(bytes));
    support_error(f->ctx, TERN_E_IO, "x.json: could not be written: File too large");
    assert_int_equal(tern_folder_close(&folder, st), TERN_E_IO);
    st = tern_weights_save(w, help_path(f, "w.safetensors"));
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    signal(SIGXFSZ, handler);
    assert_int_equal(st, TERN_E_IO);
    support_error(f->ctx, TERN_E_IO, "w.safetensors: could not be written: File too large");
    assert_int_equal(count_files(f), 0);
    assert_int_equal(tern_weights_save(w, f->path), TERN_OK);
    tern_weights_unref(&w);
}

static void keeps_mode(struct fixture *f, mode_t mode)
{
    struct stat st;
    help_write(help_path(f, "out"), "old");
    assert_int_equal(chmod(f->path, mode), 0);
    struct tern_writer *w = tern_writer_open(f->ctx, f->path);
    assert_non_null(w);
    fputs("new", w->file);
    assert_int_equal(fstat(fileno(w->file), &st), 0);
    assert_int_equal(st.st_mode & 07777, mode); /* before its bytes are there */
    assert_int_equal(tern_writer_commit(&w), TERN_OK);
    assert_int_equal(stat(f->path, &st), 0);
    assert_int_equal(st.st_mode & 07777, mode);
    help_holds(f->path, "new");
}

static void a_file_keeps_its_mode(void **state)
{
    struct fixture *f = *state;
    mode_t old = umask(027);
    keeps_mode(f, 0600);
    keeps_mode(f, 0666);
    umask(old);
}

static void become(uid_t user) { assert_int_equal(setresuid(user, user, 0), 0); }

static int back_to_root(void **state)
{
    uid_t real, effective, saved;
    const bool lost = !getresuid(&real, &effective, &saved) && !saved && setresuid(0, 0, 0);
    return help_teardown(state) || lost;
}

/* Another user's file, which may be written and, as in /tmp, not be replaced: the bytes go into it. Where they cannot, they stay beside it.
 */
static void a_file_that_cannot_be_replaced_is_filled(void **state)
{
    struct fixture *f = *state;
    struct stat before, after;
    if (geteuid() || setresuid(1, 1, 0)) {
        print_message("skipped: only root becomes another user\n");
        skip();
    }
    become(0);
    help_write(help_path(f, "out"), "old and longer than the new one");
    assert_int_equal(chmod(f->folder, 01777) | chmod(f->path, 0666) | stat(f->path, &before), 0);
    become(1);
    struct tern_writer *w = tern_writer_open(f->ctx, f->path);
    assert_non_null(w);
    fputs("new", w->file);
    assert_int_equal(tern_writer_commit(&w), TERN_OK);
    help_holds(f->path, "new");
    assert_int_equal(stat(f->path, &after), 0);
    assert_int_equal(after.st_ino, before.st_ino);
    assert_int_equal(count_files(f), 1);
    w = tern_writer_open(f->ctx, f->path);
    fputs("newer", w->file);
    char kept[PATH_MAX];
    snprintf(kept, sizeof(kept), "%s", w->temporary);
    become(0);
    assert_int_equal(chmod(f->path, 0644), 0);
    become(1);
    assert_int_equal(tern_writer_commit(&w), TERN_E_IO);
    assert_non_null(strstr(tern_error(f->ctx), kept));
    support_error(f->ctx, TERN_E_IO, "out: could not be written: Permission denied; it is complete in ");
    help_holds(kept, "newer");
    help_holds(f->path, "new");
    unlink(kept);
    assert_int_equal(tern_check_writable(f->ctx, f->path), TERN_E_IO);
    support_error(f->ctx, TERN_E_IO, "out: cannot be written: Permission denied");
    become(0);
}

/* As long as names may be, of bytes and of letters of three: not longer while it is written either. One byte more is said before the work. */
static void names_may_be_long(void **state)
{
    struct fixture *f = *state;
    char path[1024];
    for (int letters = 0; letters < 2; letters++) {
        int n = snprintf(path, sizeof(path), "%s/", f->folder);
        for (int i = 0; i < 255; i++)
            path[n + i] = letters ? "\xe4\xb8\xad"[i % 3] : 'x';
        path[n + 255] = 0;
        assert_int_equal(tern_check_writable(f->ctx, path), TERN_OK);
        struct tern_writer *w = tern_writer_open(f->ctx, path);
        assert_non_null(w);
        DIR *d = opendir(f->folder);
        for (const struct dirent *e = readdir(d); e; e = readdir(d)) /* no half of a letter */
            assert_true(!letters || *e->d_name == '.' || strspn(e->d_name, "\xe4\xb8\xad") % 3 == 0);
        closedir(d);
        fputs("new", w->file);
        assert_int_equal(tern_writer_commit(&w), TERN_OK);
        help_holds(path, "new");
        assert_int_equal(unlink(path), 0);
        struct tern_folder folder;
        assert_int_equal(tern_folder_open(&folder, f->ctx, path), TERN_OK);
        assert_int_equal(tern_folder_close(&folder, TERN_OK), TERN_OK);
        assert_int_equal(rmdir(path), 0);
        assert_int_equal(count_files(f), 0);
    }
    strcat(path, "x");
    assert_int_equal(tern_check_writable(f->ctx, path), TERN_E_IO);
    support_error(f->ctx, TERN_E_IO, "cannot be written: File name too long");
    struct tern_folder folder;
    assert_int_equal(tern_folder_open(&folder, f->ctx, path), TERN_E_IO);
    support_error(f->ctx, TERN_E_IO, "the folder cannot be made: File name too long");
    assert_int_equal(tern_folder_close(&folder, TERN_E_IO), TERN_E_IO);
}

static enum tern_status write_folder(struct tern_context *ctx, const char *path, enum tern_status end)
{
    struct tern_folder folder;
    enum tern_status st = tern_folder_check(ctx, path);
    if (st || (st = tern_folder_open(&folder, ctx, path)))
        return st;
    const char *sub = tern_folder_make(&folder, folder.root, "unet");
    st = sub ? tern_folder_write_text(&folder, sub, "config.json", "{}") : tern_error_status(ctx);
    if (!st)
        st = tern_folder_write_text(&folder, folder.root, "index.json", "[]");
    return tern_folder_close(&folder, st ? st : end);
}

/* An empty folder that is there stays what it is: it may be where somebody works. Given up, it is empty again. */
static void an_empty_folder_is_filled(void **state)
{
    static const char *const names[] = {"there/.", "there", "there//"};
    struct fixture *f = *state;
    struct stat before, after;
    for (int i = 0; i < 3; i++) {
        help_folder(f, "there");
        assert_int_equal(chmod(f->path, 0750) | stat(f->path, &before), 0);
        assert_int_equal(write_folder(f->ctx, help_path(f, names[i]), TERN_E_IO), TERN_E_IO);
        assert_int_equal(rmdir(help_path(f, "there")), 0);
        help_folder(f, "there");
        assert_int_equal(chmod(f->path, 0750) | stat(f->path, &before), 0);
        assert_int_equal(write_folder(f->ctx, help_path(f, names[i]), TERN_OK), TERN_OK);
        assert_int_equal(stat(help_path(f, "there"), &after), 0);
        assert_true(after.st_ino == before.st_ino && after.st_mode == before.st_mode);
        help_holds(help_path(f, "there/index.json"), "[]");
        help_holds(help_path(f, "there/unet/config.json"), "{}");
        assert_int_equal(unlink(help_path(f, "there/index.json")) | unlink(help_path(f, "there/unet/config.json")), 0);
        assert_int_equal(rmdir(help_path(f, "there/unet")) | rmdir(help_path(f, "there")), 0); /* nothing else was in there */
    }
}

static void a_mount_point_is_filled(void **state)
{
    struct fixture *f = *state;
    char path[PATH_MAX];
    help_folder(f, "mount");
    snprintf(path, sizeof(path), "%s/index.json", f->path);
    pid_t child = fork();
    if (!child) {
        if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) || mount("none", f->path, "tmpfs", 0, NULL))
            _exit(2);
        _exit(write_folder(f->ctx, f->path, TERN_OK) || access(path, R_OK));
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 2) {
        print_message("skipped: no file system can be mounted here\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void bad_outputs_are_found_early(void **state)
{
    struct fixture *f = *state;
    help_folder(f, "sub");
    assert_int_equal(tern_check_writable(f->ctx, help_path(f, "sub/new.png")), TERN_OK);
    assert_int_equal(tern_path_kind(f->path), TERN_PATH_MISSING);
    assert_int_equal(tern_check_writable(f->ctx, help_path(f, "sub")), TERN_E_IO);
    support_error(f->ctx, TERN_E_IO, "sub: expected a file name, found a folder");
    assert_int_equal(tern_check_writable(f->ctx, help_path(f, "absent/new.png")), TERN_E_IO);
    support_error(f->ctx, TERN_E_IO, "absent/new.png: cannot be written: No such file");
    assert_int_equal(tern_check_writable(f->ctx, "/proc/new.png"), TERN_E_IO);
    support_error(f->ctx, TERN_E_IO, "/proc/new.png: cannot be written");
    assert_int_equal(tern_check_writable(f->ctx, ""), TERN_E_IO);
    support_error(f->ctx, TERN_E_IO, "expected a file name, found an empty one");
    assert_int_equal(tern_folder_check(f->ctx, ""), TERN_E_INVALID);
    support_error(f->ctx, TERN_E_INVALID, "expected the name of a new or empty folder, found an empty name");
    help_write(help_path(f, "kept"), "old");
    assert_int_equal(tern_check_writable(f->ctx, f->path), TERN_OK);
    help_holds(f->path, "old");
    assert_int_equal(count_files(f), 2);
}

static enum tern_status write_text(struct fixture *f, const char *name, const char *text)
{
    struct tern_writer *w = tern_writer_open(f->ctx, help_path(f, name));
    if (!w)
        return tern_error_status(f->ctx);
    fputs(text, w->file);
    return tern_writer_commit(&w);
}

static mode_t kind_of(struct fixture *f, const char *name)
{
    struct stat st;
    assert_int_equal(lstat(help_path(f, name), &st), 0);
    return st.st_mode & S_IFMT;
}

/* What a link leads to is replaced or made, there; the link stays. */
static void links_keep_their_place(void **state)
{
    static const char *const links[][2] = {
        {"link", "first"}, {"sub/inner", "link"}, {"target", "sub/inner"}, {"round", "round"}, {"sub", "folder"}};
    struct fixture *f = *state;
    char absolute[256];
    help_folder(f, "sub");
    help_write(help_path(f, "sub/target"), "old");
    strcpy(absolute, f->path);
    assert_int_equal(symlink(absolute, help_path(f, "absolute")), 0);
    for (size_t i = 0; i < sizeof(links) / sizeof(*links); i++)
        assert_int_equal(symlink(links[i][0], help_path(f, links[i][1])), 0);
    assert_int_equal(tern_check_writable(f->ctx, help_path(f, "first")), TERN_OK);
    assert_int_equal(write_text(f, "first", "new"), TERN_OK);
    help_holds(absolute, "new");
    assert_int_equal(write_text(f, "absolute", "newer"), TERN_OK);
    help_holds(absolute, "newer");
    assert_int_equal(kind_of(f, "sub/target"), S_IFREG);
    unlink(absolute);
    assert_int_equal(write_text(f, "first", "made"), TERN_OK);
    help_holds(absolute, "made");
    assert_int_equal(write_text(f, "round", "never"), TERN_E_IO);
    support_error(f->ctx, TERN_E_IO, "round: cannot be written: Too many levels");
    assert_int_equal(write_text(f, "folder", "never"), TERN_E_IO);
    support_error(f->ctx, TERN_E_IO, "folder: expected a file name, found a folder");
    for (size_t i = 0; i < sizeof(links) / sizeof(*links); i++)
        assert_int_equal(kind_of(f, links[i][1]), S_IFLNK);
    assert_int_equal(kind_of(f, "absolute"), S_IFLNK);
    assert_int_equal(count_files(f), 6);
}

/* They are written into, and are there afterwards. Whether they can be is asked without opening them: nobody reads this pipe then. */
static void pipes_and_devices_stay(void **state)
{
    struct fixture *f = *state;
    char found[16] = "";
    assert_int_equal(mkfifo(help_path(f, "pipe"), 0600), 0);
    assert_int_equal(tern_check_writable(f->ctx, f->path), TERN_OK);
    int reader = open(f->path, O_RDONLY | O_NONBLOCK);
    assert_int_equal(write_text(f, "pipe", "through"), TERN_OK);
    assert_int_equal(read(reader, found, sizeof(found) - 1), 7);
    assert_string_equal(found, "through");
    struct tern_writer *w = tern_writer_open(f->ctx, f->path);
    tern_writer_discard(&w);
    close(reader);
    assert_int_equal(kind_of(f, "pipe"), S_IFIFO);
    assert_int_equal(count_files(f), 1);

    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int s = socket(AF_UNIX, SOCK_STREAM, 0);
    snprintf(at.sun_path, sizeof(at.sun_path), "%s/socket", f->folder);
    assert_int_equal(bind(s, (struct sockaddr *)&at, sizeof(at)), 0);
    assert_int_equal(tern_check_writable(f->ctx, at.sun_path), TERN_E_IO);
    support_error(f->ctx, TERN_E_IO, "socket: expected a file name, found a socket");
    close(s);

    if (mknod(help_path(f, "null"), S_IFCHR | 0600, makedev(1, 3)) || access(f->path, W_OK)) { /* never the one in /dev */
        print_message("no device can be made here\n");
        return;
    }
    assert_int_equal(tern_check_writable(f->ctx, f->path), TERN_OK);
    if (write_text(f, "null", "gone"))
        support_error(f->ctx, TERN_E_IO, "null: cannot be written: "); /* mounted without devices */
    assert_int_equal(kind_of(f, "null"), S_IFCHR);
    assert_int_equal(count_files(f), 3);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, help_setup, help_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_file_appears_when_it_is_complete),
        TEST(a_new_file_has_the_usual_mode),
        TEST(a_file_keeps_its_mode),
        cmocka_unit_test_setup_teardown(a_file_that_cannot_be_replaced_is_filled, help_setup, back_to_root),
        TEST(a_killed_writer_leaves_the_old_file),
        TEST(a_full_disk_leaves_the_old_file),
        TEST(a_pipe_without_a_reader_is_an_error),
        TEST(half_written_products_vanish),
        TEST(links_keep_their_place),
        TEST(pipes_and_devices_stay),
        TEST(names_may_be_long),
        TEST(an_empty_folder_is_filled),
        TEST(a_mount_point_is_filled),
        TEST(bad_outputs_are_found_early),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
