/* What the samplers share that call the model between two noise levels, too: their calls, and ancestral steps. Calls 0, 2, 4 … are
 * at the levels, calls 1, 3, 5 … between them; the last step, down to 0, is one call. */
#include <math.h>

#include "models/schedulers/scheduler.h"

struct tern_ancestral tern_ancestral_step(const struct tern_scheduler *s, float from, float to)
{
    float up = fminf(to, (float)s->options.eta * sqrtf(to * to * (from * from - to * to) / (from * from)));
    return (struct tern_ancestral){.up = up, .down = sqrtf(fmaxf(to * to - up * up, 0))}; /* rounding can make it negative */
}

enum tern_status tern_midpoint_steps(struct tern_scheduler *s, float (*middle)(const struct tern_scheduler *s, float from, float to))
{
    enum tern_status status = tern_growing_steps(s);
    if (status)
        return status;
    int n = s->calls;
    for (int i = n - 1; i >= 0; i--) { /* from the end, so that nothing is overwritten before it is read */
        float from = s->sigmas[i], to = i == n - 1 ? 0 : s->sigmas[2 * i + 2];
        s->sigmas[2 * i] = from;
        s->sigmas[2 * i + 1] = to > 0 ? middle(s, from, to) : 0;
        s->timesteps[2 * i] = s->timesteps[i];
        s->timesteps[2 * i + 1] = (double)(float)tern_timestep_of(s, (double)s->sigmas[2 * i + 1]);
    }
    s->calls = 2 * n - 1;
    s->sigma_count = 2 * n;
    return TERN_OK;
}

float tern_log_middle(float from, float to)
{
    float a = (float)log((double)from), b = (float)log((double)to);
    return to > 0 ? tern_exp_f32(a + (b - a) * 0.5f) : 0;
}

bool tern_midpoint_draws_noise(const struct tern_scheduler *s, int i) { return s->options.eta > 0 && i % 2 == 1; }
