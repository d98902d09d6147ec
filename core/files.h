/* Files: mapped for reading, written through a temporary name. */
#ifndef TERN_CORE_FILES_H
#define TERN_CORE_FILES_H

#include <stdio.h>
#include <tern/base.h>

/* A read-only mapping of a whole file. Reference-counted, because tensors point into it. */
struct tern_mapping {
    const uint8_t *data; /* NULL when the file is empty */
    size_t size;
    char *path; /* for messages */
    struct tern_context *ctx;
    int refs;
    int file;                  /* its descriptor */
    struct tern_mapping *next; /* of the context's */
};

/* Maps a regular file. NULL with the error recorded (path and reason) when it cannot be. */
struct tern_mapping *tern_map_file(struct tern_context *ctx, const char *path);
struct tern_mapping *tern_mapping_ref(struct tern_mapping *m);
void tern_mapping_unref(struct tern_mapping **m);
/* That part will soon be read, or its pages may go, those that it shares with others, too: they are read from the file again when somebody
 * needs them. Else the two ends of each weight of a UNet would stay resident, 2 MiB. */
void tern_mapping_advise(const struct tern_mapping *m, size_t offset, size_t size, bool needed);
/* What lies at `from`, which is mapped and stays so, is copied from the file itself: no page of the mapping becomes resident, and none has
 * to be found by a fault. False: it lies in no file that the context maps, or could not be read. Thread safe. */
bool tern_mapping_read(struct tern_context *ctx, const void *from, size_t size, void *to);

/* Reads a whole file (with a terminating NUL that is not counted); refuses files above `limit` bytes. Free with tern_free. */
char *tern_read_file(struct tern_context *ctx, const char *path, size_t limit, size_t *size);

enum tern_path_kind { TERN_PATH_MISSING, TERN_PATH_FILE, TERN_PATH_FOLDER, TERN_PATH_OTHER };
enum tern_path_kind tern_path_kind(const char *path);
/* "dir/name"; free with tern_free. */
char *tern_path_join(struct tern_context *ctx, const char *dir, const char *name);

/* What leads to the same place when the process goes to another folder; free with tern_free. NULL with the error recorded. */
char *tern_path_fixed(struct tern_context *ctx, const char *path);

/* The name behind symbolic links, of what need not be there; free with tern_free. NULL with the error recorded. */
char *tern_path_target(struct tern_context *ctx, const char *path);

/* "path" + "end", beside it: of a name that would be longer than names may be the end is cut off before; free with tern_free. NULL with the
 * error recorded. */
char *tern_path_beside(struct tern_context *ctx, const char *path, const char *end);

/* Output that appears under its name only when complete. Write to `file`, then commit (renames) or
 * discard (removes). Both free the writer and set it to NULL. A failed write is found by commit.
 * A symbolic link stays; what it leads to is replaced, by a file of its mode. What can be written but not replaced, as a mount point, is
 * written over when the output is complete; where that fails the temporary file stays, and the error names it. Pipes and character devices
 * are written straight into: do not seek. */
struct tern_writer {
    FILE *file;
    char *path;      /* as given, for messages */
    char *target;    /* behind links */
    char *temporary; /* beside it; NULL: written straight into */
    struct tern_context *ctx;
    bool held[2]; /* signals of failed writes that the thread does not get until it is closed */
};
/* Of one thread until it is closed. */
struct tern_writer *tern_writer_open(struct tern_context *ctx, const char *path);
enum tern_status tern_writer_commit(struct tern_writer **w);
void tern_writer_discard(struct tern_writer **w);

/* TERN_OK when a file of that name could be written now (folder exists and is writable, name is no
 * folder, a device or pipe may be written into); leaves nothing behind, and opens no pipe. For finding a bad output path before a long job.
 */
enum tern_status tern_check_writable(struct tern_context *ctx, const char *path);

/* A folder that appears under its name only when complete; until then it lies beside it, in `root`. An empty one that is there stays the
 * folder that it is: `root` lies in it, and what is in there moves up when it is complete. Every function but tern_folder_close
 * gives an error that is recorded; then close it with that. */
struct tern_folder {
    struct tern_context *ctx;
    char *root;
    char *target; /* the name, behind links */
    char **made;  /* in order; each is removed when the folder is given up */
    bool fills;   /* the target was there */
    int count, capacity;
};
/* TERN_E_INVALID unless nothing of that name is there, or an empty folder. */
enum tern_status tern_folder_check(struct tern_context *ctx, const char *path);
enum tern_status tern_folder_open(struct tern_folder *f, struct tern_context *ctx, const char *path);
/* "parent/name", which is made; borrowed. Parents begin with f->root. */
const char *tern_folder_make(struct tern_folder *f, const char *parent, const char *name);
/* "parent/name", which the caller will make; borrowed. */
const char *tern_folder_note(struct tern_folder *f, const char *parent, const char *name);
enum tern_status tern_folder_write(struct tern_folder *f, const char *parent, const char *name, const char *bytes, size_t size);
enum tern_status tern_folder_write_text(struct tern_folder *f, const char *parent, const char *name, const char *text);
/* st TERN_OK: under its name; else, or when that fails, gone. Gives back the status. */
enum tern_status tern_folder_close(struct tern_folder *f, enum tern_status st);

#endif
