/* tern: a portable tensor framework that runs Stable Diffusion. This header brings all the others. */
#ifndef TERN_TERN_H
#define TERN_TERN_H

#include <tern/base.h>        /* status, dtypes */
#include <tern/conformance.h> /* does a device compute what tern says */
#include <tern/context.h>     /* context, callbacks, memory */
#include <tern/graph.h>       /* recorded ops, plans */
#include <tern/image.h>       /* pictures in files */
#include <tern/ops.h>         /* the op set */
#include <tern/pipeline.h>    /* txt2img and its parts */
#include <tern/quantize.h>    /* recipes: which layers compute in int8 */
#include <tern/random.h>      /* generators */
#include <tern/scheduler.h>   /* samplers */
#include <tern/tensor.h>      /* tensors and scopes */
#include <tern/tokenizer.h>   /* text to ids */
#include <tern/tune.h>        /* measuring which kernels are fastest */
#include <tern/weights.h>     /* weight files */

#endif
