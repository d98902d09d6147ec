"""A whole txt2img of 512x512 with diffusers on a folder without a tokenizer: ids go in instead of a prompt. Prints "step" when
the first UNet call begins. usage: torch_txt2img.py FOLDER STEPS THREADS f32|bf16 OUT.png [INTERVAL of DeepCache, by its authors' package]"""
import json
import sys

import torch
from diffusers import DDIMScheduler, StableDiffusionPipeline


def cached(pipe, interval):
    from DeepCache import DeepCacheSDHelper
    helper = DeepCacheSDHelper(pipe=pipe)
    helper.set_params(cache_interval=interval, cache_branch_id=0)
    helper.enable()


def main(folder, steps, threads, dtype, out, interval=None):
    print(json.dumps({"version": torch.__version__}), flush=True)
    torch.set_num_threads(int(threads))
    kind = {"f32": torch.float32, "bf16": torch.bfloat16}[dtype]
    pipe = StableDiffusionPipeline.from_pretrained(folder, torch_dtype=kind, tokenizer=None, safety_checker=None)
    pipe.scheduler = DDIMScheduler.from_config(pipe.scheduler.config)  # a call of the UNet for each step
    pipe.set_progress_bar_config(disable=True)
    ids = torch.full((2, 77), 49407)
    ids[:, 0] = 49406
    ids[1, 1:9] = torch.arange(1000, 1008)
    with torch.inference_mode():
        negative, positive = pipe.text_encoder(ids)[0].chunk(2)
    handle = pipe.unet.register_forward_pre_hook(lambda *_: print("step", flush=True))
    if interval:
        cached(pipe, int(interval))
    pipe(prompt_embeds=positive, negative_prompt_embeds=negative, num_inference_steps=int(steps),
         generator=torch.Generator().manual_seed(1)).images[0].save(out)
    handle.remove()


main(*sys.argv[1:])
