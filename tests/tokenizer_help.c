/* A temporary folder that tests fill with tokenizer files. */
#include "tokenizer_help.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

char folder[512];

void path_of(const char *name, char path[1024]) { snprintf(path, 1024, "%s/%s", folder, name); }

void write_bytes(const char *name, const void *data, size_t size)
{
    char path[1024];
    path_of(name, path);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
}

void write_text(const char *name, const char *text) { write_bytes(name, text, strlen(text)); }

char *read_data(const char *from, const char *name, size_t *size)
{
    char path[1024];
    snprintf(path, sizeof(path), "%s/%s%s", TERN_TEST_DATA, from, name);
    FILE *f = fopen(path, "rb");
    char *data = calloc(1, 1u << 20);
    if (!f || !data)
        fail_msg("%s: cannot be read", path);
    *size = fread(data, 1, (1u << 20) - 1, f);
    fclose(f);
    return data;
}

void copy_data(const char *from, const char *name)
{
    size_t size;
    char *data = read_data(from, name, &size);
    write_bytes(name, data, size);
    free(data);
}

void empty_folder(void)
{
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        char path[1024];
        path_of(e->d_name, path);
        if (e->d_name[0] != '.')
            unlink(path);
    }
    closedir(d);
}

int folder_setup(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR");
    snprintf(folder, sizeof(folder), "%s/tern-tokenizer-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    return mkdtemp(folder) ? 0 : -1;
}

int folder_teardown(void **state)
{
    (void)state;
    empty_folder();
    return rmdir(folder);
}
