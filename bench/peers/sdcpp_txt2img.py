"""A whole txt2img of 512x512 with stable-diffusion.cpp, by Euler's steps. Prints "step" when its first step begins.
usage: sdcpp_txt2img.py FOLDER STEPS THREADS f32|bf16 OUT.png"""
import json
import sys

import sdcpp


def main(folder, steps, threads, dtype, out):
    print(json.dumps({"version": sdcpp.version()}), flush=True)
    # takes a gigabyte less, and hardly more time
    model = sdcpp.load(folder, threads, dtype, vae_conv_direct=True)

    def progress(step, *_):
        if step == 0:
            print("step", flush=True)

    sdcpp.picture(model, steps=int(steps), progress_callback=progress).save(out)


main(*sys.argv[1:])
