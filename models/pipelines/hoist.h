/* What of the UNet does not depend on the latents: computed before the steps, by plans of their own. Keys and values of the attention to
 * the text follow from the text, what residual blocks are told of the time from the timestep. The weights of both need not be there while
 * the steps run. */
#ifndef TERN_MODELS_HOIST_H
#define TERN_MODELS_HOIST_H

#include "models/pipelines/predict.h"

/* The graph of a stage, of the UNet's. NULL without an error: the stage is of what is known early, and there is none. */
struct tern_graph *tern_hoist_part(struct tern_graph **graph, const struct tern_stage *stage);

/* Sets j->known: packed weights that go must be more than the values that come, by p->hoist_least. */
enum tern_status tern_job_choose_known(struct tern_job *j);
/* The kinds that are known before the steps, worth it or not. */
unsigned tern_job_may_know(const struct tern_job *j);
/* Drops the plans that compute it, of the job's limits: of kinds, bits of TERN_KNOWN_…. Else those that the choice has made stay for the
 * next one. */
void tern_job_drop_early(struct tern_job *j, unsigned kinds);
/* The values of all calls; and the most that making them takes beside, for a moment. */
size_t tern_job_known_bytes(const struct tern_job *j, size_t *making);

/* Computes the values from the predictor's inputs. */
enum tern_status tern_known_open(const struct tern_job *j, struct tern_predictor *s);
void tern_known_close(const struct tern_job *j, struct tern_predictor *s);
/* Puts those of a call, for a group, behind the other inputs. */
void tern_known_give(const struct tern_job *j, const struct tern_predictor *s, int call, int group, tern_tensor **in);

#endif
