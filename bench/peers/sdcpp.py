"""What the scripts of stable-diffusion.cpp share. Its progress bars are not shown, and of its log the errors of what failed."""
import contextlib
import ctypes
import logging
import os
import sys
import time

ours = os.dup(1)  # the library writes to what was standard output
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
sys.stdout = os.fdopen(ours, "w")

import stable_diffusion_cpp as library  # noqa: E402

ERROR = 3
lines = []  # (when, level, text) of the log since the last call


@library.sd_log_callback
def heard(level, text, _):
    lines.append((time.monotonic(), level, text.decode(errors="replace")))


@contextlib.contextmanager
def a_call():
    lines.clear()
    try:
        yield
    except Exception:
        sys.stderr.write("".join(text for _, level, text in lines if level == ERROR))
        raise


def version():
    return library.__version__


def load(folder, threads, dtype, **options):
    """A diffusers folder, all parts of it, with weights in that dtype."""
    library.sd_set_log_callback(heard, ctypes.c_void_p(0))
    with a_call():
        # verbose: else the package takes standard output and error away from all threads while it computes
        model = library.StableDiffusion(model_path=folder, n_threads=int(threads), wtype=dtype, verbose=True, **options)
    logging.getLogger("stable-diffusion-cpp-python").setLevel(logging.ERROR)  # so that it does not print either
    return model


def picture(model, size=512, steps=None, **options):
    """With guidance. Without steps noise is decoded as it is: a list of one noise level has no step."""
    how = {"sample_steps": steps} if steps else {"sample_steps": 1, "sigmas": "1"}
    with a_call():
        return model.generate_image(prompt="a boat on the sea", width=size, height=size, cfg_scale=7.5, sample_method="euler", seed=1, **how, **options)[0]


def between(begin, end):
    """Seconds from one line of the log of the last picture to another one."""
    when = {mark: at for at, _, text in lines for mark in (begin, end) if mark in text}
    return when[end] - when[begin]
