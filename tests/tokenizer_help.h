/* A temporary folder that tests fill with tokenizer files. Failures end the running test. */
#ifndef TERN_TESTS_TOKENIZER_HELP_H
#define TERN_TESTS_TOKENIZER_HELP_H

#include <stddef.h>

/* Folders of tests/data. */
#define SD1 "models/sd1/tokenizer/"
#define BERT "tokenizers/bert-wide/"

/* The folder, between these two (a group's setup and teardown). */
extern char folder[512];
int folder_setup(void **state);
int folder_teardown(void **state);

void empty_folder(void);
void path_of(const char *name, char path[1024]);
void write_bytes(const char *name, const void *data, size_t size);
void write_text(const char *name, const char *text);
/* tests/data/<from><name>; free() */
char *read_data(const char *from, const char *name, size_t *size);
void copy_data(const char *from, const char *name);

#endif
