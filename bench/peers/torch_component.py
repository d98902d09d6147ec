"""Times one component of a diffusers folder under PyTorch, as bench/model.c does for tern: loads, runs once, then once for
each line "run" on standard input.
usage: torch_component.py FOLDER text_encoder|unet|vae_decoder BATCH THREADS [DEVICE [f32|bf16|f16 [compile]]]"""
import sys
import time

import torch

import protocol

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


def load(folder, component, dtype):
    if component == "text_encoder":
        from transformers import CLIPTextModel
        return CLIPTextModel.from_pretrained(folder + "/text_encoder", dtype=dtype)
    from diffusers import AutoencoderKL, UNet2DConditionModel
    if component == "unet":
        return UNet2DConditionModel.from_pretrained(folder + "/unet", torch_dtype=dtype)
    return AutoencoderKL.from_pretrained(folder + "/vae", torch_dtype=dtype)


def call(model, component, batch, device, dtype):
    """The component's call on inputs like those of bench/model.c."""
    g = torch.Generator("cpu").manual_seed(0)
    if component == "text_encoder":
        ids = torch.tensor([[49406 if i % 77 == 0 else 49407 if i % 77 > 40 else 1000 + i for i in range(batch * 77)]]).view(batch, 77)
        return lambda: model(ids)
    sample = torch.randn(batch, 4, 64, 64, generator=g, device="cpu").to(device, dtype)
    if component == "unet":
        context = torch.randn(batch, 77, 768, generator=g, device="cpu").to(device, dtype)
        return lambda: model(sample, torch.tensor(500), context, return_dict=False)
    return lambda: model.decode(sample, return_dict=False)


def main(folder, component, batch, threads, device="cpu", dtype="f32", compiled=""):
    torch.set_num_threads(int(threads))
    torch.set_default_device(device)
    torch.backends.cudnn.allow_tf32 = False  # f32 is f32, as in tern: by default convolutions round their factors to 10 bits
    start = time.monotonic()
    # channels_last is the faster layout for convolutions
    model = load(folder, component, DTYPES[dtype]).eval().to(device=device, memory_format=torch.channels_last)
    if compiled:
        model = torch.compile(model)
    once = call(model, component, int(batch), device, DTYPES[dtype])

    def run():
        once()
        if device != "cpu":
            torch.cuda.synchronize()

    seconds = time.monotonic() - start
    with torch.inference_mode():
        protocol.serve(seconds, run, version=torch.__version__)


main(*sys.argv[1:])
