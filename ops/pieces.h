/* Ops that are several others in one: what they are where a kernel for one of these is better than any for the whole. */
#ifndef TERN_OPS_PIECES_H
#define TERN_OPS_PIECES_H

#include "ops/op.h"

tern_tensor *tern_linear_geglu_pieces(tern_tensor *const *in, int n_in);

#endif
