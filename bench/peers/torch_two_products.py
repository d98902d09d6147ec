"""The products of bench/two_products.c with PyTorch on a GPU: TFLOP/s of the best of three bursts, a JSON object each, for each line "run" on standard input.
usage: torch_two_products.py DEVICE [f16|bf16|f32] [SIDE]"""
import json
import sys
import time

import torch


def main(device, dtype="f16", side="4096"):
    kind = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}[dtype]
    n = int(side)
    torch.backends.cudnn.allow_tf32 = False  # f32 is f32, as in tern: by default convolutions round their factors to 10 bits
    sync = torch.cuda.synchronize if device != "cpu" else lambda: None
    noise = lambda *shape: (torch.randn(*shape) * 0.02).to(device, kind)  # noqa: E731
    a, b = noise(n, n), noise(n, n)
    x = noise(2, 320, 64, 64).to(memory_format=torch.channels_last)
    w = noise(320, 320, 3, 3).to(memory_format=torch.channels_last)
    products = {"matmul": (lambda: a @ b, 2.0 * n ** 3),
                "conv2d": (lambda: torch.nn.functional.conv2d(x, w, padding=1), 2.0 * 2 * 64 * 64 * 320 * 320 * 9)}

    def timed(f, calls):
        start = time.monotonic()
        for _ in range(calls):
            f()
        sync()
        return (time.monotonic() - start) / calls

    for line in sys.stdin:
        for name, (f, flops) in products.items():
            timed(f, 1)
            calls = 1 if timed(f, 1) > 0.2 else 20
            best = min(timed(f, calls) for _ in range(3))
            print(json.dumps({"product": name, "seconds": best, "tflops": flops / best * 1e-12}), flush=True)


with torch.inference_mode():
    main(*sys.argv[1:])
