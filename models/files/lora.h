/* LoRA files: low-rank changes of a model's matrices, and the weight sets that they give.        [Hu 2021] */
#ifndef TERN_MODELS_FILES_LORA_H
#define TERN_MODELS_FILES_LORA_H

#include <tern/pipeline.h>

/* The parts of a model that LoRAs change. */
enum tern_lora_part { TERN_LORA_UNET, TERN_LORA_TEXT, TERN_LORA_TEXT_2, TERN_LORA_PARTS };
/* "unet", "text_encoder", "text_encoder_2"; static. */
const char *tern_lora_part_name(enum tern_lora_part part);

/* What a tensor of a file is. Shapes are those for a base of (out, in, kh, kw); matrices have no kh, kw. "flat" is (rows, in kh kw). */
enum tern_lora_role {
    TERN_LORA_DOWN, /* A: (r, in, kh, kw); with a mid (q, in, 1, 1) */
    TERN_LORA_UP,   /* B: (out, r, 1, 1) */
    TERN_LORA_MID,  /* (r, q, kh, kw), for convolutions only */
    TERN_LORA_ALPHA,
    TERN_LORA_DORA_SCALE, /* of LyCORIS and kohya's scripts: (out, 1, 1, 1) or (1, in, 1, 1) */
    TERN_LORA_MAGNITUDE,  /* of PEFT: (out) or (1, out, 1, 1) */
    TERN_LORA_HADA_W1_A,  /* (out, r); with t1 (r, out) */
    TERN_LORA_HADA_W1_B,  /* flat with r rows; with t1 (q, in) */
    TERN_LORA_HADA_T1,    /* (r, q, kh, kw) */
    TERN_LORA_HADA_W2_A,
    TERN_LORA_HADA_W2_B,
    TERN_LORA_HADA_T2,
    TERN_LORA_KRON_W1, /* (a, c), where out is a multiple of a, in of c; or the product of the two that follow */
    TERN_LORA_KRON_W1_A,
    TERN_LORA_KRON_W1_B,
    TERN_LORA_KRON_W2,   /* (out / a, in / c, kh, kw) */
    TERN_LORA_KRON_W2_A, /* as hada_w1_a … of that shape */
    TERN_LORA_KRON_W2_B,
    TERN_LORA_KRON_T2,
    TERN_LORA_GLORA_A1, /* GLoRA's A = a1 a2: (in, r), (r, in). Older LyCORIS: (r, in), (in, r), and b1 (r, in), b2 (out, r) */
    TERN_LORA_GLORA_A2,
    TERN_LORA_GLORA_B1,   /* its B as UP and DOWN: (out, r) */
    TERN_LORA_GLORA_B2,   /* (r, in, kh, kw); with a core (r, in, 1, 1) */
    TERN_LORA_GLORA_BM,   /* the core, (r, r, kh, kw) */
    TERN_LORA_DIFF,       /* as the base */
    TERN_LORA_UP_BIAS,    /* of a bias: (out) */
    TERN_LORA_FACTOR,     /* IA3: (out) or (in); convolutions (1, out, 1, 1) or (1, in, 1, 1) */
    TERN_LORA_ON_INPUT,   /* IA3: one number, 0: FACTOR is of the outputs */
    TERN_LORA_OFT_BLOCKS, /* OFT: (k, n, n), where k n = out; BOFT: (m, k, n, n), n even, k a multiple of 2^(m-1) */
    TERN_LORA_OFT_DIAG,   /* OFT of LyCORIS 2.0: the rotations themselves, (k, n, n) */
    TERN_LORA_RESCALE,    /* of both: (out), or as many with sizes 1 behind */
    TERN_LORA_ROLES
};

/* What a module of a file does with the weight W that it names. */
enum tern_lora_kind {
    TERN_LORA_NONE,
    TERN_LORA_LOW_RANK,    /* LoRA, LoCon: W + s alpha / r B A             [Hu 2021] */
    TERN_LORA_HADAMARD,    /* LoHa: W + s alpha / r (B1 A1) * (B2 A2)      [Hyeon-Woo 2021; Yeh 2023] */
    TERN_LORA_KRONECKER,   /* LoKr: W + s alpha / r W1 (x) W2              [Edalati 2022; Yeh 2023] */
    TERN_LORA_GENERALISED, /* GLoRA: W + s alpha / r (W A + B), A between the inputs   [Chavan 2023] */
    TERN_LORA_WHOLE,       /* W + s D; also of biases and norms */
    TERN_LORA_FACTORS,     /* IA3: W (1 + s v), by row or column           [Liu 2022] */
    TERN_LORA_ORTHOGONAL   /* OFT, BOFT: W + s (g R W - W), g by row       [Qiu 2023; Liu 2023] */
};

/* What a file holds for one tensor of the model. */
struct tern_lora_module {
    enum tern_lora_kind kind;
    int64_t tensor[TERN_LORA_ROLES]; /* indices into its tensors plus one; 0: none */
    int64_t weight;                  /* of a bias: index of the weight that it belongs to, whose alpha counts for UP_BIAS */
    bool on_input;                   /* ON_INPUT's value; DORA_SCALE has a number for each input */
    bool butterfly;                  /* OFT_BLOCKS are BOFT's */
    bool turned;                     /* GLoRA is of older LyCORIS */
    int64_t inputs;                  /* it is for so many of the first inputs of W and leaves the others; 0: for all */
    double scale;                    /* alpha / rank; 1 where there is none */
    double constraint;               /* OFT, BOFT: alpha x out, the largest norm of B - B^T; 0: none */
};

/* An opened file, whose tensors have found their places in one model. Immutable; one thread at a time counts references. */
struct tern_lora_file {
    int refs;
    struct tern_context *ctx;
    char *path;
    const char *format; /* "kohya" …, static; NULL before one was recognised */
    unsigned model;     /* of architecture.h: what the model is */
    struct tern_weights *weights;
    struct {
        struct tern_lora_module *module; /* by index in the part's weight set */
        int64_t count;
    } part[TERN_LORA_PARTS];
};

/* Reads a file for the model of that architecture (of architecture.h) with these weight sets (borrowed, by part; NULL: the model has no
 * such part). Tensors that the model has
 * no place for are told to the log, with their number and names. NULL with the error recorded: no weight file, no LoRA, a kind of
 * adapter that tern does not have, one for another architecture, no tensor that has a place, shapes that do not fit. */
struct tern_lora_file *tern_lora_open(struct tern_context *ctx, const char *path, unsigned model,
                                      struct tern_weights *const bases[TERN_LORA_PARTS]);
struct tern_lora_file *tern_lora_ref(struct tern_lora_file *f);
void tern_lora_unref(struct tern_lora_file **f);

/* A file, how strongly it counts, and where (borrowed). */
struct tern_lora_use {
    const struct tern_lora_file *file;
    double scale;
    const struct tern_lora_strength *blocks;
    int n_blocks;
};

/* The part's weights with these LoRAs: base itself when none of them changes it. The caller owns the reference; NULL with the
 * error recorded. What is new is computed on the context's device, in f32, and rounded once to base's dtype. */
struct tern_weights *tern_lora_derive(struct tern_weights *base, enum tern_lora_part part, const struct tern_lora_use *uses, int n);

/* Refuses a block that the model does not have, and strengths that are no numbers. The model's text encoders are the parts first to
 * end - 1. */
enum tern_status tern_lora_check_blocks(const struct tern_weights *unet, enum tern_lora_part first, int end, const struct tern_lora *lora);

/* ---- between the files of the reader */

/* The places of one part under all the names that LoRA files use for them. */
struct tern_lora_names;
struct tern_lora_names *tern_lora_names_create(const struct tern_weights *base, enum tern_lora_part part);
void tern_lora_names_destroy(struct tern_lora_names **n);
/* Indices in the weight set of a module's weight and of its bias, -1 when it has none; false when there is no such module. '.' and '_' are
 * the same in a name. */
bool tern_lora_names_find(const struct tern_lora_names *n, const char *module, int64_t *weight, int64_t *bias);

/* Sets the kind of every module and checks that it is complete and fits the base; bases as in tern_lora_open. */
enum tern_status tern_lora_check_modules(struct tern_lora_file *f, struct tern_weights *const bases[TERN_LORA_PARTS]);

/* Sets the scale of every module: from its alpha tensor, else from the file's metadata, else 1. */
enum tern_status tern_lora_read_alphas(struct tern_lora_file *f, struct tern_weights *const bases[TERN_LORA_PARTS]);

/* One warning of values that are NaN or infinite, in tensors that have a place: other programs take such files, too. An error: no memory. */
enum tern_status tern_lora_warn_of_values(const struct tern_lora_file *f);

/* Refuses a file for another architecture than the model's, as far as that can be told: by the header, by widths that do not fit, and by
 * names if it is asked for. TERN_OK: it may fit. */
enum tern_status tern_lora_check_model(const struct tern_lora_file *f, struct tern_weights *const bases[TERN_LORA_PARTS], bool by_names);

/* How many inputs the weight has that a module was made for, by tensors that nobody has checked; `kernel`: the elements for each of them,
 * kh kw. 0: they do not tell. */
int64_t tern_lora_inputs(const struct tern_lora_file *f, const struct tern_lora_module *m, int64_t kernel);

/* The factor of tensor `name`, without the LoRA's scale. */
double tern_lora_strength(const struct tern_lora_use *u, enum tern_lora_part part, const char *name);

/* What a module adds to W (f32, in the shape of the base), times `strength`; belongs to the open scope. */
tern_tensor *tern_lora_difference(const struct tern_lora_file *f, const struct tern_lora_module *m, tern_tensor *w, double strength);

/* That of OFT and BOFT, (out, all else). */
tern_tensor *tern_lora_rotation(const struct tern_lora_file *f, const struct tern_lora_module *m, tern_tensor *w, double strength);

/* A tensor's name, fit for messages. */
const char *tern_lora_name_text(const struct tern_lora_file *f, int64_t i, char *out);

#endif
