/* Reading an infotext: the fields that are followed, in three tables, each with its functions. */
#ifndef TERN_MODELS_INFOTEXT_KNOWN_H
#define TERN_MODELS_INFOTEXT_KNOWN_H

#include <tern/pipeline.h>

struct tern_infotext_reading {
    struct tern_txt2img_params params;
    bool ours;                   /* tern wrote it */
    bool hires;                  /* there is a second pass */
    enum tern_schedule schedule; /* by its own field; TERN_SCHEDULE_COUNT: there is none */
    unsigned takes;              /* options of the sampler */
    int tags;                    /* of LoRAs behind the prompt */
    enum tern_dtype dtype;
};

/* A field that is followed. */
struct tern_infotext_known {
    const char *name;
    bool (*take)(struct tern_infotext_reading *r, const char *value); /* false: it cannot be followed */
};
/* Ended by a name of NULL, in the order in which they are read: options depend on the sampler. infotext_known.c, infotext_known_hires.c,
 * infotext_known_xl.c. */
extern const struct tern_infotext_known tern_infotext_basics[], tern_infotext_second_pass[], tern_infotext_stages[];

/* infotext_known.c: a value that is nothing but a number of that range; false: it is not, and *out stays. */
bool tern_infotext_whole(const char *v, int64_t min, int64_t max, int64_t *out);
bool tern_infotext_number(const char *v, double min, double max, double *out);
bool tern_infotext_int(const char *v, int min, int max, int *out);
/* "WIDTHxHEIGHT" */
bool tern_infotext_pair(const char *v, int least, int most, int *width, int *height);

#endif
