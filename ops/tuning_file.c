/* What was measured, on disk. Text, so that people can read it:
 *
 *     tern-tuning 1
 *     device KEY TEXT                       of the results that follow
 *     KEY LEVEL KERNEL TIME USUAL TIME      one description; times in nanoseconds
 *     crc32 XXXXXXXX                        of all before it
 *
 * KEY: 32 hexadecimal digits. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>

#include "core/context.h"
#include "core/files.h"
#include "ops/tuner.h"

#define KIND "tern-tuning "
#define HEAD KIND "1\n"
#define CRC_LINE 15                    /* "crc32 01234567\n" */
#define LIMIT ((size_t)16 << 20)       /* bytes of a file */
#define NAME_CHARACTERS "%63[a-z0-9_]" /* TERN_TUNE_NAME - 1 */

struct reader {
    struct tern_context *ctx;
    const char *path;
    struct tern_tuning *t;
    int line, device; /* -1: none yet */
};

static enum tern_status wrong(const struct reader *r, const char *what)
{
    return tern_fail(r->ctx, TERN_E_FORMAT, "%s: line %d: %s: the file is damaged or none of tuning", r->path, r->line, what);
}

static bool read_key(const char *text, struct tern_key *key)
{
    if (strspn(text, "0123456789abcdef") != TERN_KEY_TEXT - 1)
        return false;
    return sscanf(text, "%16" SCNx64 "%16" SCNx64, &key->word[0], &key->word[1]) == 2;
}

static enum tern_status read_device(struct reader *r, const char *line)
{
    struct tern_key key;
    if (!read_key(line, &key) || line[TERN_KEY_TEXT - 1] != ' ' || strlen(line) - TERN_KEY_TEXT >= TERN_TUNE_DEVICE)
        return wrong(r, "expected a device's key and text");
    r->device = tern_tuning_device(r->ctx, r->t, key, line + TERN_KEY_TEXT);
    return r->device < 0 ? tern_error_status(r->ctx) : TERN_OK;
}

static enum tern_status read_result(struct reader *r, const char *line)
{
    struct tern_tuned e = {.device = (uint16_t)r->device};
    int level = -1, used = 0;
    if (r->device < 0)
        return wrong(r, "expected a device first");
    if (!read_key(line, &e.key))
        return wrong(r, "expected a key of 32 hexadecimal digits");
    int n = sscanf(line + TERN_KEY_TEXT - 1, " %1d " NAME_CHARACTERS " %15" SCNu64 " " NAME_CHARACTERS " %15" SCNu64 "%n", &level, e.kernel,
                   &e.time, e.usual, &e.usual_time, &used);
    if (n != 5 || line[TERN_KEY_TEXT - 1 + used] || level < TERN_TUNE_FAST || level > TERN_TUNE_FULL)
        return wrong(r, "expected a level, and two kernels with their times");
    e.level = (uint8_t)level;
    return tern_tuning_set(r->ctx, r->t, &e);
}

static enum tern_status read_lines(struct reader *r, char *text)
{
    for (char *line = text, *end; *line; line = end + 1) {
        r->line++;
        end = strchr(line, '\n');
        if (!end)
            return wrong(r, "expected the end of a line");
        *end = 0;
        enum tern_status st = strncmp(line, "device ", 7) ? read_result(r, line) : read_device(r, line + 7);
        if (st)
            return st;
    }
    return TERN_OK;
}

static const char *crc_line(uLong crc, char out[CRC_LINE + 1])
{
    snprintf(out, CRC_LINE + 1, "crc32 %08lx\n", crc);
    return out;
}

enum tern_status tern_tuning_read(struct tern_context *ctx, const char *path, struct tern_tuning *t)
{
    struct reader r = {.ctx = ctx, .path = path, .t = t, .line = 1, .device = -1};
    char seal[CRC_LINE + 1];
    size_t size;
    tern_tuning_clear(ctx, t);
    char *text = tern_read_file(ctx, path, LIMIT, &size);
    if (!text)
        return tern_error_status(ctx);
    enum tern_status st;
    if (size < strlen(HEAD) + CRC_LINE || strlen(text) != size || strncmp(text, HEAD, strlen(HEAD)) != 0)
        st = wrong(&r, "expected \"tern-tuning 1\" and a checksum");
    else if (memcmp(text + size - CRC_LINE, crc_line(crc32_z(0, (const uint8_t *)text, size - CRC_LINE), seal), CRC_LINE) != 0)
        st = wrong(&r, "the checksum at the end does not fit");
    else {
        text[size - CRC_LINE] = 0;
        st = read_lines(&r, text + strlen(HEAD));
    }
    tern_free(ctx, text);
    if (st)
        tern_tuning_clear(ctx, t);
    return st;
}

static void put(FILE *f, uLong *crc, const char *text)
{
    fputs(text, f);
    *crc = crc32_z(*crc, (const uint8_t *)text, strlen(text));
}

/* Whether there is nothing that is no file of results, of whatever version and in whatever state. */
static bool may_replace(const char *path)
{
    char start[sizeof(KIND) - 1];
    FILE *f = fopen(path, "rb");
    const size_t n = f ? fread(start, 1, sizeof(start), f) : 0;
    if (f)
        fclose(f);
    return !memcmp(start, KIND, n);
}

enum tern_status tern_tuning_write(struct tern_context *ctx, const char *path, const struct tern_tuning *t)
{
    if (!may_replace(path))
        return tern_fail(ctx, TERN_E_FORMAT,
                         "%s: it is another kind of file, and stays as it is; expected one that begins with \"" KIND "\", or none", path);
    struct tern_writer *w = tern_writer_open(ctx, path);
    uLong crc = crc32_z(0, NULL, 0);
    char line[TERN_TUNE_DEVICE + 2 * TERN_TUNE_NAME + 64], key[TERN_KEY_TEXT];
    if (!w)
        return tern_error_status(ctx);
    put(w->file, &crc, HEAD);
    for (int i = 0; i < t->n_devices; i++) {
        snprintf(line, sizeof(line), "device %s %s\n", tern_key_text(t->devices[i].key, key), t->devices[i].text);
        put(w->file, &crc, line);
        for (int k = 0; k < t->n; k++) {
            const struct tern_tuned *e = &t->tuned[k];
            if (e->device != i)
                continue;
            snprintf(line, sizeof(line), "%s %d %s %" PRIu64 " %s %" PRIu64 "\n", tern_key_text(e->key, key), e->level, e->kernel, e->time,
                     e->usual, e->usual_time);
            put(w->file, &crc, line);
        }
    }
    fputs(crc_line(crc, line), w->file);
    return tern_writer_commit(&w); /* finds writes that failed */
}
