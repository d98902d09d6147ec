/* The manifest of a model folder that ships with tern: which files it has, how long they are, and their checksums. */
#ifndef TERN_MODELS_FILES_MANIFEST_H
#define TERN_MODELS_FILES_MANIFEST_H

#include <tern/base.h>

/* Compares the files of a folder with its manifest.json: {"files": {"unet/config.json": {"size": 12, "crc32": "00c0ffee"}, …}}.
 * CRC-32 is zlib's: it finds damage and mix-ups; it is no protection against somebody who changes both. Reads every file once,
 * about 0.7 ms a megabyte when it is in the cache. The first file that is missing, of another size or of another checksum is the error:
 * TERN_E_NOT_FOUND or TERN_E_FORMAT. Files that the manifest does not list are not looked at. */
enum tern_status tern_manifest_check(struct tern_context *ctx, const char *folder);

#endif
