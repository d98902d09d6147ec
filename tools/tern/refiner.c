/* SDXL's second model, which goes on where the first has ended. */
#include "picture.h"

static int open_refiner(struct picture_job *j, const struct picture_settings *s, const struct tern_pipeline_params *params)
{
    if (!j->refiner && !(j->refiner = tern_pipeline_load(j->ctx, s->xl.refiner, params)))
        return library_failed(j->ctx, false);
    return lora_set(j->ctx, j->refiner, &s->xl.loras, NULL);
}

/* With LoRAs its UNet would be in memory beside the first's. */
int refiner_try(struct picture_job *j, const struct picture_settings *s, const struct tern_pipeline_params *params,
                struct tern_txt2img_params p)
{
    int code = s->xl.refiner[0] ? open_refiner(j, s, params) : GO_ON;
    xl_second(&s->xl, &p);
    if (code == GO_ON && j->refiner && tern_generate_check(j->refiner, &p, NULL))
        code = library_failed(j->ctx, true);
    if (s->xl.loras.count)
        tern_pipeline_destroy(&j->refiner);
    return code;
}

int refiner_run(struct picture_job *j, const struct picture_settings *s, const struct tern_pipeline_params *params,
                struct tern_txt2img_params p)
{
    struct tern_images *first = j->result;
    j->result = NULL;
    xl_second(&s->xl, &p);
    p.width = tern_image_width(tern_images_at(first, 0));
    p.height = tern_image_height(tern_images_at(first, 0));
    p.init_latents = tern_images_latents(first);
    tern_pipeline_destroy(&j->pipeline);
    int code = open_refiner(j, s, params);
    trace_call(&j->trace);
    if (code == GO_ON && !(j->result = tern_generate(j->refiner, &p)))
        code = library_failed(j->ctx, true);
    for (int i = 0; j->result && i < tern_images_count(first); i++) /* which tells of both models */
        tern_image_set_text(tern_images_at(j->result, i), "parameters", tern_image_text(tern_images_at(first, i), "parameters"));
    tern_images_destroy(&first);
    return code;
}
