/* Reading an infotext: the fields that are followed, in four tables, each with its functions. */
#ifndef TERN_MODELS_INFOTEXT_KNOWN_H
#define TERN_MODELS_INFOTEXT_KNOWN_H

#include <tern/pipeline.h>

struct tern_infotext_reading {
    struct tern_txt2img_params params;
    bool ours;  /* tern wrote it */
    bool hires; /* there is a second pass */
    bool has_seed;
    unsigned takes; /* options of the sampler */
    int tags;       /* of LoRAs behind the prompt */
    enum tern_dtype dtype;
};

/* A field that is followed. */
struct tern_infotext_known {
    const char *name;
    bool (*take)(struct tern_infotext_reading *r, const char *value); /* false: it cannot be followed */
};
/* Ended by a name of NULL, in the order in which they are read: options depend on the sampler. infotext_known_sampler.c, infotext_known.c,
 * infotext_known_hires.c, infotext_known_xl.c. */
extern const struct tern_infotext_known tern_infotext_sampling[], tern_infotext_basics[], tern_infotext_second_pass[],
    tern_infotext_stages[];

/* infotext_known.c: a value that is nothing but a number of that range; false: it is not, and *out stays. */
bool tern_infotext_whole(const char *v, int64_t min, int64_t max, int64_t *out);
bool tern_infotext_number(const char *v, double min, double max, double *out);
bool tern_infotext_int(const char *v, int min, int max, int *out);
/* "WIDTHxHEIGHT" */
bool tern_infotext_pair(const char *v, int least, int most, int *width, int *height);

/* infotext_known_sampler.c: a sampler, whose name may end with a schedule's; false: it is not known, or it has no schedules, and *schedule
 * stays. */
bool tern_infotext_sampler(const char *v, enum tern_sampler *sampler, enum tern_schedule *schedule);
bool tern_infotext_has_schedules(enum tern_sampler s);
/* A schedule of that sampler; false: it is not known, or the sampler has none. Automatic is true, and *out stays. */
bool tern_infotext_schedule(const char *v, enum tern_sampler sampler, enum tern_schedule *out);
/* What a sampler steps by where nothing is said. A1111's samplers of k-diffusion step through all noise levels evenly; the checkpoint's
 * own scheduler, which is the default here, does not. */
enum tern_schedule tern_infotext_usual_schedule(const struct tern_infotext_reading *r, enum tern_sampler sampler);

#endif
