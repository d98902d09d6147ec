"""The same as bench/model.c with stable-diffusion.cpp: a step is its two calls of the UNet, one for each row. It has all of its parts in memory, of
which one is timed. usage: sdcpp_component.py FOLDER text_encoder|unet|vae_decoder THREADS f32|bf16"""
import os
import queue
import sys
import threading
import time

import protocol
import sdcpp


def unet(model):
    """A run is the next step of one long picture, whose thread waits in front of each."""
    go, done = queue.Queue(), queue.Queue()

    def progress(step, *_):
        if step:
            done.put(None)
        go.get()

    def paint():
        try:
            sdcpp.picture(model, steps=1000, progress_callback=progress)
            done.put(RuntimeError("the picture is done"))
        except Exception as why:  # told by the run that waits
            done.put(why)

    threading.Thread(target=paint, daemon=True).start()

    def run():
        go.put(None)
        if why := done.get():
            raise why

    return run


def text_encoder(model):
    """Both prompts, in front of the smallest picture."""
    def run():
        sdcpp.picture(model, size=64)
        return sdcpp.between("sampling using", "get_learned_condition completed")

    return run


def vae_decoder(model):
    def run():
        sdcpp.picture(model)
        return sdcpp.between("decoding 1 latents", "latent 1 decoded")

    return run


def main(folder, component, threads, dtype):
    start = time.monotonic()
    model = sdcpp.load(folder, threads, dtype)
    seconds = time.monotonic() - start
    run = {"text_encoder": text_encoder, "unet": unet, "vae_decoder": vae_decoder}[component](model)
    protocol.serve(seconds, run, version=sdcpp.version())
    os._exit(0)  # a picture may still wait for its next step


main(*sys.argv[1:])
