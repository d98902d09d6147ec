"""A whole txt2img of 512x512 with OpenVINO's files of openvino_export.py and Euler's steps: ids go in instead of a prompt. Prints "step" when the
first call of the UNet begins. usage: openvino_txt2img.py FOLDER STEPS THREADS f32|bf16 OUT.png [CACHE]"""
import json
import struct
import sys
import zlib

import numpy
import openvino

from openvino_component import compiled

GUIDANCE = 7.5


def sigmas(steps):
    """Noise levels of Stable Diffusion's 1000 timesteps (scaled linear betas), evenly taken, and their timesteps."""
    beta = numpy.linspace(0.00085 ** 0.5, 0.012 ** 0.5, 1000) ** 2
    alpha = numpy.cumprod(1 - beta)
    times = numpy.linspace(999, 0, steps)
    level = numpy.interp(times, numpy.arange(1000), ((1 - alpha) / alpha) ** 0.5)
    return times, numpy.append(level, 0)


def write_png(path, rgb):
    """rgb: (H, W, 3) bytes."""
    height, width, _ = rgb.shape
    rows = b"".join(b"\0" + rgb[y].tobytes() for y in range(height))
    with open(path, "wb") as f:
        f.write(b"\x89PNG\r\n\x1a\n")
        for kind, data in ((b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")):
            f.write(struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)))


def main(folder, steps, threads, dtype, out, cache=None):
    print(json.dumps({"version": openvino.get_version().split("-")[0]}), flush=True)
    load = lambda component: compiled(folder, component, threads, dtype, cache)  # noqa: E731
    ids = numpy.full((2, 77), 49407, numpy.int64)
    ids[:, 0] = 49406
    ids[1, 1:9] = numpy.arange(1000, 1008)
    context = load("text_encoder")([ids])[0].copy()
    unet = load("unet")
    times, level = sigmas(int(steps))
    x = numpy.random.default_rng(1).standard_normal((1, 4, 64, 64), numpy.float32) * level[0]
    print("step", flush=True)
    for i, time in enumerate(times):
        rows = numpy.concatenate([x, x]) / (level[i] ** 2 + 1) ** 0.5
        without, given = unet([rows.astype(numpy.float32), numpy.array([time], numpy.float32), context])[0]
        x = x + (without + GUIDANCE * (given - without))[None] * (level[i + 1] - level[i])
    del unet
    pixels = load("vae_decoder")([(x / 0.18215).astype(numpy.float32)])[0][0]
    write_png(out, numpy.round(numpy.clip(pixels.transpose(1, 2, 0) / 2 + 0.5, 0, 1) * 255).astype(numpy.uint8))


main(*sys.argv[1:])
