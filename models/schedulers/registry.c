/* The samplers by number and by name: tern's names, diffusers' classes, AUTOMATIC1111's labels. */
#include <stdio.h>
#include <string.h>

#include "core/ascii.h"
#include "models/schedulers/scheduler.h"

static const struct tern_sampler_fns *const samplers[TERN_SAMPLER_COUNT] = {
    [TERN_SAMPLER_DDIM] = &tern_sampler_ddim,
    [TERN_SAMPLER_PNDM] = &tern_sampler_pndm,
    [TERN_SAMPLER_EULER] = &tern_sampler_euler,
    [TERN_SAMPLER_EULER_A] = &tern_sampler_euler_a,
    [TERN_SAMPLER_DPMPP_2M] = &tern_sampler_dpmpp_2m,
    [TERN_SAMPLER_HEUN] = &tern_sampler_heun,
    [TERN_SAMPLER_LMS] = &tern_sampler_lms,
    [TERN_SAMPLER_UNIPC] = &tern_sampler_unipc,
    [TERN_SAMPLER_LCM] = &tern_sampler_lcm,
    [TERN_SAMPLER_DPM2] = &tern_sampler_dpm2,
    [TERN_SAMPLER_DPM2_A] = &tern_sampler_dpm2_a,
    [TERN_SAMPLER_DDPM] = &tern_sampler_ddpm,
    [TERN_SAMPLER_TCD] = &tern_sampler_tcd,
    [TERN_SAMPLER_DPMPP_2S_A] = &tern_sampler_dpmpp_2s_a,
    [TERN_SAMPLER_DPMPP_SDE] = &tern_sampler_dpmpp_sde,
    [TERN_SAMPLER_DPMPP_2M_SDE] = &tern_sampler_dpmpp_2m_sde,
    [TERN_SAMPLER_DPMPP_2M_SDE_HEUN] = &tern_sampler_dpmpp_2m_sde_heun,
    [TERN_SAMPLER_DPMPP_3M_SDE] = &tern_sampler_dpmpp_3m_sde,
    [TERN_SAMPLER_DPM_FAST] = &tern_sampler_dpm_fast,
    [TERN_SAMPLER_DPM_ADAPTIVE] = &tern_sampler_dpm_adaptive,
};

/* tern's name, A1111's label, another name that it has there */
static const struct schedule {
    const char *name, *label, *alias;
} schedules[TERN_SCHEDULE_COUNT] = {
    [TERN_SCHEDULE_DEFAULT] = {"default", "Automatic", NULL},
    [TERN_SCHEDULE_KARRAS] = {"karras", "Karras", NULL},
    [TERN_SCHEDULE_EXPONENTIAL] = {"exponential", "Exponential", NULL},
    [TERN_SCHEDULE_BETA] = {"beta", "Beta", NULL},
    [TERN_SCHEDULE_SGM_UNIFORM] = {"sgm_uniform", "SGM Uniform", NULL},
    [TERN_SCHEDULE_SIMPLE] = {"simple", "Simple", NULL},
    [TERN_SCHEDULE_NORMAL] = {"normal", "Normal", "uniform"},
    [TERN_SCHEDULE_DDIM_UNIFORM] = {"ddim_uniform", "DDIM", NULL},
    [TERN_SCHEDULE_ALIGN_YOUR_STEPS] = {"align_your_steps", "Align Your Steps", "AYS"},
};

#define MAX_NAME 64

const struct tern_sampler_fns *tern_sampler_fns(enum tern_sampler sampler)
{
    return (unsigned)sampler < TERN_SAMPLER_COUNT ? samplers[sampler] : NULL;
}

const struct tern_sampler_fns *tern_sampler_of_class(struct tern_context *ctx, const char *where, const char *class_name)
{
    char list[256];
    for (int i = 0; i < TERN_SAMPLER_COUNT; i++)
        if (samplers[i] && strcmp(samplers[i]->class_name, class_name) == 0)
            return samplers[i];
    tern_sampler_list(list, sizeof(list), false);
    tern_fail(ctx, TERN_E_UNSUPPORTED, "%s: %.60s is not available; choose a sampler: %s", where, class_name, list);
    return NULL;
}

void tern_sampler_list(char *out, size_t size, bool schedules_only)
{
    size_t used = 0;
    out[0] = 0;
    for (int i = 0; i < TERN_SAMPLER_COUNT; i++)
        if (samplers[i] && (samplers[i]->has_schedules || !schedules_only) && used < size)
            used += (size_t)snprintf(out + used, size - used, "%s%s", used ? ", " : "", samplers[i]->name);
}

const char *tern_sampler_name(enum tern_sampler s)
{
    const struct tern_sampler_fns *fns = tern_sampler_fns(s);
    return fns ? fns->name : s == TERN_SAMPLER_DEFAULT ? "default" : "?";
}

/* Lower case without blanks, brackets, '_' and '-'; "" when the name is too long to be one. */
static void normalise(const char *name, char out[MAX_NAME])
{
    size_t n = 0;
    for (; *name; name++) {
        if (strchr(" ()_-", *name))
            continue;
        if (n == MAX_NAME - 1) {
            n = 0;
            break;
        }
        out[n++] = tern_ascii_lower(*name);
    }
    out[n] = 0;
}

static bool same_name(const char *normal, const char *name)
{
    char other[MAX_NAME];
    if (!name)
        return false;
    normalise(name, other);
    return strcmp(normal, other) == 0;
}

bool tern_same_name(const char *a, const char *b)
{
    char normal[MAX_NAME];
    normalise(a, normal);
    return same_name(normal, b);
}

static bool is_called(const struct tern_sampler_fns *fns, const char *normal)
{
    if (same_name(normal, fns->name) || same_name(normal, fns->class_name))
        return true;
    for (size_t i = 0; i < sizeof(fns->aliases) / sizeof(fns->aliases[0]); i++)
        if (same_name(normal, fns->aliases[i]))
            return true;
    return false;
}

/* Cuts `end`, normalised, off the end; false when it is not there or nothing is before it. */
static bool cut(const char *normal, const char *end, char out[MAX_NAME])
{
    char tail[MAX_NAME];
    normalise(end ? end : "", tail);
    size_t n = strlen(normal), k = strlen(tail);
    if (k == 0 || n <= k || strcmp(normal + n - k, tail) != 0)
        return false;
    memcpy(out, normal, n - k);
    out[n - k] = 0;
    return true;
}

static enum tern_sampler find(const char *normal)
{
    for (int i = 0; i < TERN_SAMPLER_COUNT; i++)
        if (samplers[i] && is_called(samplers[i], normal))
            return samplers[i]->sampler;
    return TERN_SAMPLER_COUNT;
}

enum tern_sampler tern_sampler_parse(const char *name, enum tern_schedule *schedule)
{
    char normal[MAX_NAME], front[MAX_NAME];
    normalise(name ? name : "", normal);
    if (strcmp(normal, "default") == 0)
        return TERN_SAMPLER_DEFAULT;
    enum tern_sampler sampler = find(normal);
    for (int i = 1; sampler == TERN_SAMPLER_COUNT && i < TERN_SCHEDULE_COUNT; i++) {
        if (!cut(normal, schedules[i].name, front) && !cut(normal, schedules[i].label, front) && !cut(normal, schedules[i].alias, front))
            continue;
        sampler = find(front);
        if (sampler != TERN_SAMPLER_COUNT && schedule)
            *schedule = (enum tern_schedule)i;
    }
    return sampler;
}

const char *tern_schedule_name(enum tern_schedule s) { return (unsigned)s < TERN_SCHEDULE_COUNT ? schedules[s].name : "?"; }

const char *tern_schedule_label(enum tern_schedule s) { return (unsigned)s < TERN_SCHEDULE_COUNT ? schedules[s].label : "?"; }

void tern_schedule_list(char *out, size_t size)
{
    size_t used = 0;
    for (int i = 0; i < TERN_SCHEDULE_COUNT && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%s", i ? ", " : "", schedules[i].name);
}

enum tern_schedule tern_schedule_parse(const char *name)
{
    char normal[MAX_NAME];
    normalise(name ? name : "", normal);
    for (int i = 0; i < TERN_SCHEDULE_COUNT; i++)
        if (same_name(normal, schedules[i].name) || same_name(normal, schedules[i].label) || same_name(normal, schedules[i].alias))
            return (enum tern_schedule)i;
    return TERN_SCHEDULE_COUNT;
}
