/* What was measured of kernels: the results of a context, their file, and the measuring. */
#ifndef TERN_OPS_TUNER_H
#define TERN_OPS_TUNER_H

#include "ops/kernel.h"
#include "ops/key.h"

#define TERN_TUNE_NAME 64      /* of a kernel, with NUL */
#define TERN_TUNE_DEVICE 512   /* text of a device, with NUL */
#define TERN_TUNE_MOST 8192    /* results of a file */
#define TERN_TUNE_DEVICES 256  /* devices of a file */
#define TERN_TUNE_CANDIDATES 8 /* kernels that are compared */

/* What was measured of one description. */
struct tern_tuned {
    struct tern_key key;         /* of the description and its candidates; tern_tuner_key */
    uint16_t device;             /* whose it is */
    uint8_t level;               /* at which it was measured: enum tern_tune_level */
    char kernel[TERN_TUNE_NAME]; /* the fastest */
    char usual[TERN_TUNE_NAME];  /* what the cost model takes */
    uint64_t time, usual_time;   /* medians of a call, nanoseconds */
};

struct tern_tuner_device {
    struct tern_key key;
    char text[TERN_TUNE_DEVICE];
};

/* All that is known: of this device, which is the first, and of those that a file told of. */
struct tern_tuning {
    struct tern_tuner_device *devices;
    int n_devices, device_capacity;
    struct tern_tuned *tuned; /* sorted by key */
    int n, capacity;
};

/* Of the plan that is compiled. */
struct tern_tuner_time {
    double left; /* seconds that may still be measured */
    bool cut;    /* something was left out for lack of them */
};

struct tern_tuner {
    struct tern_tune_params params; /* with the defaults filled in */
    char *path;                     /* of the file; NULL: there is none */
    struct tern_tuning known;
    struct tern_tuner_time time;
    double eager_left; /* seconds that may still be measured for eager ops */
    bool changed;      /* something was measured that the file has not */
    bool told;         /* that the file cannot be written */
    bool ran;          /* a measurement took memory */
    bool measures;     /* a measurement runs: calls in it go by the cost model */
};

/* The context's, made and its file read at the first call; NULL when it does not tune, a kernel is forced, or there is no memory (which is
 * recorded). */
struct tern_tuner *tern_tuner_get(struct tern_context *ctx);

/* Whether and how the context tunes: contexts of equal modes make the same plans of the same results. */
uint64_t tern_tuner_mode(const struct tern_context *ctx);

/* A plan begins: its time starts. What it gives back, of a plan in whose callback this one is compiled, is put back behind the end. And
 * ends: the file is written if something new was measured. */
struct tern_tuner_time tern_tuner_begin(struct tern_tuner *t);
void tern_tuner_end(struct tern_context *ctx, struct tern_tuner *t);

/* The key of the description for the context's device. Opens the libraries of its candidates, whose versions count. */
struct tern_key tern_tuner_key(struct tern_context *ctx, const struct tern_op_desc *d);
/* What is known; NULL: nothing, or a kernel that is not there any more. Valid until something is measured. */
const struct tern_tuned *tern_tuner_find(struct tern_context *ctx, struct tern_tuner *t, const struct tern_op_desc *d);
/* The same; when it is not known as well as the level wants, it is measured first. noticeable: whether the level fast may measure it.
 * *left: the seconds that there are, lessened by those that it took. An error of the context means that its job is cancelled; nothing else
 * is one. */
const struct tern_tuned *tern_tuner_measure(struct tern_context *ctx, struct tern_tuner *t, const struct tern_op_desc *d, bool noticeable,
                                            double *left);
/* The kernel of an eager call: `usual`, which is the cost model's, or by measurement. May fail as above. */
const struct tern_kernel *tern_tuner_eager(struct tern_context *ctx, const struct tern_op_desc *d, const struct tern_kernel *usual);
/* Operations, and bytes as many operations as they take the time of: for comparing descriptions, not for telling times. */
double tern_tuner_work(const struct tern_op_desc *d);

/* measure.c: fills level, kernels and times. False when there is nothing to choose, no kernel could be measured, or the time was
 * over (*cut) before each candidate had its turns. */
struct tern_measure {
    enum tern_tune_level level;
    double until; /* by tern_now */
    size_t bytes;
    bool *cut;
};
bool tern_measure(struct tern_context *ctx, const struct tern_op_desc *d, const struct tern_measure *m, struct tern_tuned *out);

/* tuning.c */
void tern_tuning_clear(struct tern_context *ctx, struct tern_tuning *t);
/* Number of the device, which is added when it is new; -1 with the error recorded. */
int tern_tuning_device(struct tern_context *ctx, struct tern_tuning *t, struct tern_key key, const char *text);
struct tern_tuned *tern_tuning_find(const struct tern_tuning *t, struct tern_key key);
/* Adds, or replaces what has that key. */
enum tern_status tern_tuning_set(struct tern_context *ctx, struct tern_tuning *t, const struct tern_tuned *entry);
/* Adds what `from` has and `t` has not. */
enum tern_status tern_tuning_merge(struct tern_context *ctx, struct tern_tuning *t, const struct tern_tuning *from);

/* tuning_file.c: replaces *t by what the file says. Errors are recorded: TERN_E_NOT_FOUND, TERN_E_FORMAT for damaged ones. */
enum tern_status tern_tuning_read(struct tern_context *ctx, const char *path, struct tern_tuning *t);
/* Complete or not at all. */
enum tern_status tern_tuning_write(struct tern_context *ctx, const char *path, const struct tern_tuning *t);

#endif
