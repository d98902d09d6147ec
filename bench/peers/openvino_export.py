"""Exports text encoder, UNet and VAE decoder of a diffusers folder to OpenVINO's files, in the shapes of a 512x512 picture; of SDXL the UNet alone, for
1024x1024. Weights are stored in f16. Takes some 10 GB of memory and a minute, SDXL 18 GB. usage: openvino_export.py FOLDER OUT [sdxl]"""
import gc
import os
import sys

import openvino
import torch
from diffusers import AutoencoderKL, UNet2DConditionModel
from transformers import CLIPTextModel


class Wrapped(torch.nn.Module):
    """A model as a function of tensors that gives one tensor."""

    def __init__(self, model, call):
        super().__init__()
        self.model, self.call = model, call

    def forward(self, *inputs):
        return self.call(self.model, *inputs)


def text_encoder(folder):
    model = CLIPTextModel.from_pretrained(folder + "/text_encoder", dtype=torch.float32)
    ids = torch.full((2, 77), 49407)
    return Wrapped(model, lambda m, i: m(input_ids=i, return_dict=False)[0]), (ids,)


def unet(folder):
    model = UNet2DConditionModel.from_pretrained(folder + "/unet", torch_dtype=torch.float32)
    inputs = torch.zeros(2, 4, 64, 64), torch.tensor([500.0]), torch.zeros(2, 77, 768)
    return Wrapped(model, lambda m, x, t, c: m(x, t, c, return_dict=False)[0]), inputs


def unet_xl(folder):
    """Its weights stay in f16: in f32 they and their copies are 30 GB."""
    from openvino.frontend.pytorch import patch_model
    model = UNet2DConditionModel.from_pretrained(folder + "/unet", torch_dtype=torch.float16)
    patch_model.__make_16bit_traceable(model)
    inputs = torch.zeros(2, 4, 128, 128), torch.tensor([500.0]), torch.zeros(2, 77, 2048), torch.zeros(2, 1280), torch.zeros(2, 6)
    return Wrapped(model, lambda m, x, t, c, e, n: m(x, t, c, added_cond_kwargs={"text_embeds": e, "time_ids": n}, return_dict=False)[0]), inputs


def vae_decoder(folder):
    model = AutoencoderKL.from_pretrained(folder + "/vae", torch_dtype=torch.float32)
    return Wrapped(model, lambda m, z: m.decode(z, return_dict=False)[0]), (torch.zeros(1, 4, 64, 64),)


def main(folder, out, arch="sd15"):
    for load in (unet_xl,) if arch == "sdxl" else (text_encoder, unet, vae_decoder):
        path = f"{out}/{load.__name__}.xml"
        if os.path.exists(path):
            continue
        module, inputs = load(folder)
        shapes = [list(x.shape) for x in inputs]
        with torch.no_grad():
            model = openvino.convert_model(module.eval(), example_input=inputs, input=shapes)
        del module
        gc.collect()
        # the .xml comes last under its name: where it is, the weights are complete
        openvino.save_model(model, f"{out}/{load.__name__}.partial.xml", compress_to_fp16=True)
        os.replace(f"{out}/{load.__name__}.partial.bin", f"{out}/{load.__name__}.bin")
        os.replace(f"{out}/{load.__name__}.partial.xml", path)
        print(path, flush=True)
        del model
        gc.collect()


os.makedirs(sys.argv[2], exist_ok=True)
main(*sys.argv[1:])
