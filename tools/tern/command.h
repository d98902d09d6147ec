/* What the files of the command share: exit codes, the option tables, messages, one run of the library.
 * The command uses the public headers alone; what it can do, any application can. */
#ifndef TERN_TOOL_COMMAND_H
#define TERN_TOOL_COMMAND_H

#include <jansson.h>
#include <stdio.h>
#include <tern/context.h>
#include <tern/pipeline.h>

enum exit_code { DONE = 0, FAILED = 1, USAGE = 2, CANCELLED = 130 };
/* Parsing went well: go on. Stands beside the exit codes. */
enum { GO_ON = -1 };

/* One option of a command. The same row gives getopt's tables and the line of --help. */
struct opt {
    int id;            /* what the command's apply() is called with */
    char letter;       /* 'p' or 0 */
    const char *name;  /* "prompt" */
    const char *value; /* "TEXT"; NULL: takes none */
    const char *help;
};

struct command {
    const char *name;
    const char *arguments; /* "[MODEL]" */
    const char *summary;
    int least, most;            /* arguments beside the options */
    const struct opt *opts[10]; /* tables, the last followed by NULL; each ends with a row without name */
    const char *notes;          /* behind the options in --help */
    /* Takes one option into the command's settings: GO_ON or an exit code. */
    int (*apply)(const struct opt *opt, const char *value, void *settings);
    int (*run)(const struct command *command, int argc, char **argv);
};

extern const struct command txt2img_command, img2img_command, inpaint_command, info_command, exec_command, tokenize_command,
    devices_command, synth_command, convert_command, graph_command, quantize_command, conformance_command, bench_command;

/* options.c: getopt_long over the table. argv[0] is the command's name; *arguments are the ones beside the options. */
int options_parse(const struct command *command, int argc, char **argv, void *settings, char ***arguments, int *count);
void options_help(const struct command *command);

/* values.c: text to value, strictly: the whole text, in range. GO_ON, or USAGE after a message that names the option. */
int value_int(const struct opt *opt, const char *text, int64_t min, int64_t max, int *out);
/* Of a picture, at most 8192: a multiple of 8. */
int value_side(const struct opt *opt, const char *text, int min, int *out);
/* `open`: min itself is too small. */
int value_number(const struct opt *opt, const char *text, double min, bool open, double max, double *out);
/* Above 0 and below 1. */
int value_part(const struct opt *opt, const char *text, double *out);
/* -1: *given is false. */
int value_seed(const struct opt *opt, const char *text, uint64_t *out, bool *given);
int value_bytes(const struct opt *opt, const char *text, size_t *out);
/* One of the names, ended by NULL: its index. */
int value_choice(const struct opt *opt, const char *text, const char *const *names, int *out);
/* A sampler; *schedule is that of a name such as "DPM++ 2M Karras", else the default, unless an option has given one. */
int value_sampler(const struct opt *opt, const char *text, enum tern_sampler *out, enum tern_schedule *schedule, bool schedule_given);
int value_schedule(const struct opt *opt, const char *text, enum tern_schedule *out);
/* "1.5 GiB" into out, which is returned. */
#define BYTES_TEXT 32
const char *bytes_text(size_t bytes, char out[BYTES_TEXT]);

/* message.c. With --json each is also an event on standard output. Those three return the code that they are named after. */
void message_setup(const char *command, bool json);
void event_send(json_t *event); /* one line on standard output; takes the reference, NULL is ignored */
/* Standard output so far; 0, or the errno with which it failed first. */
int output_flush(void);
/* What stands in a file, for a terminal: control characters that are not `kept` become blanks, so that none is a command to it. Returned. */
char *message_clean(char *text, const char *kept);
/* A line of the command, "tern" and `before` in front, on standard error: control characters but line ends and tabs as blanks. */
void message_show(const char *before, const char *text);
/* What goes on without something. */
void warn(const char *fmt, ...) TERN_PRINTF(1, 2);
/* Texts from the command line may be no UTF-8, which JSON cannot hold: null then, and for NULL. */
json_t *text_json(const char *text);
/* A string for JSON: each byte that is no part of UTF-8, as of a path or of a character that was cut, becomes '?'. NULL without memory. */
json_t *message_json(const char *text);
/* fields.c: a message of the library, with options in place of the fields that it names. For free; NULL without memory. */
char *fields_as_options(const char *text);
int usage(const char *fmt, ...) TERN_PRINTF(1, 2);
int failed(const char *fmt, ...) TERN_PRINTF(1, 2);
int cancelled(const char *reason); /* said where there was a signal, not for want of a standard output */
/* The error of the library: CANCELLED or FAILED; USAGE when the call only read `arguments` of the command line and one
 * of them was wrong. */
int library_failed(const struct tern_context *ctx, bool arguments);
/* The same of what stands in a file that the message does not name. */
int library_failed_in(const struct tern_context *ctx, const char *path);

/* Options of every command that computes. */
enum {
    OPT_DEVICE = 1,
    OPT_DTYPE,
    OPT_WEIGHTS,
    OPT_THREADS,
    OPT_BUDGET,
    OPT_DEVICE_BUDGET,
    OPT_TUNE,
    OPT_TUNE_CACHE,
    OPT_TUNE_TIME,
    OPT_TUNE_MEMORY,
    OPT_JSON,
    OPT_QUIET,
    OPT_VERBOSE,
    OPT_RECIPE,
    OPT_OWN /* the first of a command's own */
};
struct run_settings {
    const char *device;
    char *behind;                  /* owned: what `device` is after a device failed */
    enum tern_dtype dtype;         /* TERN_DTYPE_COUNT: auto */
    const char *quantize, *recipe; /* as in tern_pipeline_params; not both */
    bool dtype_given;
    const char *weights;               /* likewise, of --weights: those of all components that it is for */
    const char *text_encoder_quantize; /* likewise, of --from */
    int threads;
    size_t budget, device_budget;
    struct tern_tune_params tune;
    bool json, quiet, verbose;
};
int run_apply(const struct opt *opt, const char *value, struct run_settings *s);
/* What to compute in, on the context's device. */
enum tern_dtype run_dtype(const struct run_settings *s, const struct tern_context *ctx);

/* tern_pipeline_params.quantize. */
const char *run_quantize(const struct run_settings *s);
const char *run_text_quantize(const struct run_settings *s);
#define WEIGHTS_HELP                                                                                                                      \
    "keep the weights of the UNet's and the text encoders' layers\nin few bits, expanded as they are used: int8, or int4, groups\nof 32 " \
    "with "                                                                                                                               \
    "a scale (default: as --dtype computes)"

extern const struct opt run_opts[];  /* device, threads, budget, tuning */
extern const struct opt talk_opts[]; /* json, quiet, verbose */

/* lora.c: the LoRAs of a command line. */
#define MOST_LORAS 32
struct lora_options {
    struct tern_lora lora[MOST_LORAS];
    int count;
};
/* Takes one FILE[:SCALE[:BLOCK=X,...]]: GO_ON or an exit code after a message. */
int lora_add(const struct opt *opt, const char *value, struct lora_options *l);
/* Gives them to a pipeline, behind them those of a prompt (or NULL): GO_ON or an exit code after a message. */
int lora_set(struct tern_context *ctx, struct tern_pipeline *p, const struct lora_options *l, const struct tern_prompt_loras *more);
/* Whether two prompts name the same, in any order. */
bool lora_same(const struct tern_prompt_loras *a, const struct tern_prompt_loras *b);
void lora_free(struct lora_options *l);
#define LORA_HELP                                                   \
    "a LoRA and how strongly it counts (default 1), as often as\n"  \
    "needed; BLOCK=X,... behind another colon changes its parts:\n" \
    "style.safetensors:0.8:text_encoder=0,down=0.5,up.1.2=0"

#define RECIPE_HELP "which layers of the UNet compute in int8, by a file of\n'tern quantize'; the rest as --dtype (then default: auto)"

#define VAE_HELP "a VAE instead of the model's: a weight file or a diffusers\nfolder"

/* embedding.c: the textual inversions of a command line. */
#define MOST_EMBEDDINGS 64
struct embedding_options {
    struct tern_prompt_embedding embedding[MOST_EMBEDDINGS];
    int count;
};
/* Takes one FILE[:NAME]: GO_ON or an exit code after a message. */
int embedding_add(const struct opt *opt, const char *value, struct embedding_options *e);
/* Gives them to a pipeline: GO_ON or an exit code after a message. */
int embedding_set(struct tern_context *ctx, struct tern_pipeline *p, const struct embedding_options *e);
void embedding_free(struct embedding_options *e);

/* run.c: a context with progress, log and cancel. NULL after a message; *code is then the exit code. */
struct tern_context *run_open(const struct run_settings *s, int *code);

/* Whether a job that ended with `code` is to be done again because its device failed and others stand behind it: tells so, ends the
 * context and makes *s go on with them. */
bool run_takes_over(struct run_settings *s, struct tern_context **ctx, int code);
/* Tells that a command has written that path: the event "done" of --json, or a line with what `fmt` says. */
void run_wrote(const struct run_settings *s, const char *path, const char *fmt, ...) TERN_PRINTF(3, 4);
/* Frees what run_takes_over left. */
void run_end(struct run_settings *s);

/* interrupt.c: SIGINT, SIGTERM and SIGHUP ask the job to stop; another one, half a second later or more, ends the process, but not while a
 * file is being written. After interrupt_catch a reader of standard output that goes ends no process, either: writes fail. */
void interrupt_catch(void);
void interrupt_quiet(bool is_quiet); /* the first Ctrl-C says nothing */
bool interrupt_seen(void);
int interrupt_code(void); /* the exit code of a cancelled job: 128 and the signal */
void interrupt_hold(bool writing);

/* progress.c: tern_progress events as a bar, as lines, or as JSON. */
void progress_setup(bool json, bool quiet);
void progress_show(const struct tern_progress *p, void *user);
/* Hands the events to `watch` instead; NULL: back to showing them. */
void progress_watch(void (*watch)(const struct tern_progress *p, void *user), void *user);
/* Ends an open bar, so that a message starts on a line of its own. */
void progress_break(void);
/* Takes an open bar away, for output that comes often; the next event draws it again. */
void progress_clear(void);

/* output.c */
/* GO_ON when a file of that name can be made: the folder exists and is writable; or a pipe or device of that name be written into. Leaves
 * nothing behind. */
int output_check(const char *path);
/* The same of all names of a job, NULL: none; USAGE when two of them are one, of which the last would be left. Pipes and devices take many.
 */
int output_check_all(const char *const *paths, int n);
/* USAGE when an output is the file that is read, by whatever name. */
int output_check_other(const char *output, const char *input);
/* USAGE when the ending is none of a picture. */
int output_check_ending(const struct opt *opt, const char *path);
/* The name of picture i of n: path itself, or with "-1" .. "-n" before the ending. Free it. */
char *output_name(const char *path, int i, int n);
/* A file of what `fill` writes, which appears under its name when it is complete: GO_ON or FAILED after a message. Links are followed,
 * pipes and devices written into. */
int output_write(const char *path, void (*fill)(FILE *file, const void *user), const void *user);

#endif
