/* The cache folder: $XDG_CACHE_HOME/tern or ~/.cache/tern, made when first written to. */
#ifndef TERN_CORE_CACHE_H
#define TERN_CORE_CACHE_H

#include <tern/base.h>

/* Path of a cache entry "kind/name"; free with tern_free. NULL when the system tells no home. */
char *tern_cache_path(struct tern_context *ctx, const char *kind, const char *name);
/* Bytes of that text with its end; 0 when there is none. */
size_t tern_cache_path_size(const struct tern_context *ctx, const char *kind, const char *name);
/* Makes the folder of such a path; what killed processes left unfinished of files with its ending goes after a day. An error: it cannot be
 * made, or a pipe is in the place of the file. */
enum tern_status tern_cache_prepare(struct tern_context *ctx, const char *path);

#endif
