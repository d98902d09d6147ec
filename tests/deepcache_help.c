#include "deepcache_help.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "job_cases.h"
#include "model_help.h"

static void count_log(enum tern_log_level level, const char *message, void *user)
{
    struct choosing *f = user;
    f->logged += level == TERN_LOG_WARN && strstr(message, "measured anew");
}

static void note_calls(const struct tern_progress *p, void *user)
{
    struct choosing *f = user;
    const bool pass = strcmp(p->stage, "sample") == 0 || strcmp(p->stage, "hires") == 0;
    if (pass && (!f->fewest || p->total < f->fewest))
        f->fewest = (int)p->total;
}

static void keep_choice(const struct tern_choice *c, void *user)
{
    struct choosing *f = user;
    assert_string_equal(c->what, "deepcache");
    snprintf(f->value, sizeof(f->value), "%s", c->value);
    snprintf(f->why, sizeof(f->why), "%s", c->why);
    f->choices++;
}

int choosing_open(void **state)
{
    char path[PATH_SIZE];
    struct choosing *f = calloc(1, sizeof(*f));
    snprintf(f->folder, sizeof(f->folder), "/tmp/tern-auto-XXXXXX");
    assert_non_null(mkdtemp(f->folder));
    f->ctx = tern_context_create(
        &(struct tern_context_params){.threads = 1, .cache_dir = f->folder, .log = count_log, .progress = note_calls, .user = f});
    f->p = model_load(f->ctx, model_path("sd1", path));
    *state = f;
    return 0;
}

int choosing_close(void **state)
{
    struct choosing *f = *state;
    char command[128];
    tern_pipeline_destroy(&f->p);
    tern_context_destroy(&f->ctx);
    snprintf(command, sizeof(command), "rm -r %s", f->folder);
    const int code = system(command);
    free(f);
    return code;
}

struct tern_txt2img_params choosing_job(struct choosing *f, double quality, int count)
{
    return tern_txt2img_params(.prompt = "a cat", .width = 48, .height = 40, .steps = 12, .seed = 3, .count = count,
                               .sampler = TERN_SAMPLER_EULER_A, .cache_quality = quality, .on_choice = keep_choice, .on_choice_user = f);
}

int choosing_interval(const struct choosing *f) { return atoi(f->value); }

struct tern_txt2img_params choosing_with(struct tern_txt2img_params q, int interval)
{
    q.cache_quality = 0;
    q.cache_interval = interval;
    q.cache_pow = interval > 1 ? 1.4 : 0;
    return q;
}

double choosing_quality_of(struct choosing *f, struct tern_txt2img_params q, int interval)
{
    struct tern_txt2img_params whole = choosing_with(q, 1), cut = choosing_with(q, interval);
    double ssim;
    whole.count = cut.count = 1;
    struct tern_images *a = job_run(f->ctx, f->p, &whole), *b = job_run(f->ctx, f->p, &cut);
    assert_int_equal(tern_image_ssim(tern_images_at(a, 0), tern_images_at(b, 0), &ssim), TERN_OK);
    tern_images_destroy(&a);
    tern_images_destroy(&b);
    return ssim;
}
