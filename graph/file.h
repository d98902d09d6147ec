/* The format of plans on disk, for file.c (writing) and file_in.c, file_node.c, file_read.c. Little-endian numbers, without padding:
 *
 *     "ternplan", u32 version, fingerprint (2 u64), u32 values, nodes, inputs, outputs, blocks, u64 arena, resident, tuning,
 *     key (2 u64)
 *     each value:  u8 kind; result and unused: no more. dtype and sizes; u16 and name, or u8 constant, u64 bytes and contents
 *     inputs, outputs: u32 values
 *     each node:   u8 kind, u8 flags, u16 op, u8 inputs, u8 mask of constant ones, i32 values (-1: absent), u32 result, dtype
 *                  and sizes; attributes (8 bytes each); u8 posts: u16 op, i8 input, f64 value; u32 groups of
 *                  a norm in front, with some u8 silu, u8 input, f64 eps; u8 and kernel's name
 *     each block:  u64 bytes, u64 offset
 *     u32 CRC-32 of all before
 *     dtype and sizes: u8 dtype, u8 dimensions, i64 sizes, i64 strides */
#ifndef TERN_GRAPH_FILE_H
#define TERN_GRAPH_FILE_H

#include "graph/check.h"
#include "graph/key.h"
#include "graph/plan.h"

#define TERN_FILE_MAGIC "ternplan"
#define TERN_FILE_VERSION 9
#define TERN_FILE_HEADER 28 /* magic, version and fingerprint */
#define TERN_FILE_CONSTANTS ((size_t)64 << 20)
#define TERN_FILE_LIMIT ((size_t)256 << 20)
#define TERN_FILE_NAME 1024       /* bytes */
#define TERN_FILE_UNUSED 4        /* kind of a value that nothing reads or makes */
#define TERN_FILE_FLAG_PREPARE 1u /* of a node */

/* A file that is being read, and what is known of its plan so far. */
struct tern_file_in {
    struct tern_context *ctx;
    const uint8_t *data;
    size_t size, at;
    int n_nodes, n_blocks;
    bool cut; /* a read went behind the end; numbers are 0 then */
    struct tern_graph *graph;
    const struct tern_kernel **kernels; /* by node */
    struct tern_plan_block *blocks;
    size_t arena, resident;
    uint64_t tuning;
    struct tern_key key;
};

/* file_in.c. Records what is wrong, and where. */
enum tern_status tern_file_wrong(const struct tern_file_in *in, const char *fmt, ...) TERN_PRINTF(2, 3);
/* The next n bytes; NULL when there are fewer. */
const void *tern_file_take(struct tern_file_in *in, size_t n);
uint64_t tern_file_number(struct tern_file_in *in, size_t size);
/* A number up to `most`; else -1. */
int tern_file_count(struct tern_file_in *in, size_t size, int most);
/* A value's number, or with `absent` -1; else -2. */
int tern_file_value(struct tern_file_in *in, bool absent);
/* False when it is not sane. */
bool tern_file_meta(struct tern_file_in *in, struct tern_meta *m);
/* A text of at most `most` bytes, none of them NUL, into `out` with a NUL behind it. */
bool tern_file_text(struct tern_file_in *in, size_t length_size, int most, char *out);

/* file_node.c: n_nodes nodes and their kernels, each checked. */
enum tern_status tern_file_nodes(struct tern_file_in *in);

/* The plan in `size` bytes; `path` is for messages. NULL with the error recorded. */
struct tern_plan *tern_plan_read(struct tern_context *ctx, const uint8_t *data, size_t size, const char *path);

/* Whether the step of a node is run by a kernel, which is then named in the file. */
static inline bool tern_node_has_kernel(const struct tern_node *n) { return n->kind == TERN_CALL_LAUNCH && !n->prepare; }

#endif
