"""Whole jobs of 50 steps, a fresh process each: what int8, few bits, DeepCache and offload save in time and memory, beside the others in bf16."""
import statistics
import sys

from engines import HERE, Engine, tern_is_step

STEPS, DTYPE = 50, "bf16"
UNEVEN = ["--deepcache", "5", "--deepcache-schedule", "quad"]
# tern's, by name: options
TERN = {
    "": [],
    "DeepCache 3": ["--deepcache", "3"],
    "DeepCache 5, quad": UNEVEN,
    "int8": ["--dtype", "int8"],
    "int8, DeepCache 3": ["--dtype", "int8", "--deepcache", "3"],
    "int8, DeepCache 5, quad": ["--dtype", "int8", *UNEVEN],
    "weights int8": ["--weights", "int8"],
    "weights int4": ["--weights", "int4"],
    "offload stream": ["--offload", "stream"],
    "int8, offload stream": ["--dtype", "int8", "--offload", "stream"],
}


def engines(args):
    tern, model, threads, steps = f"{args.build}/tools/tern/tern", f"{args.work}/sd15-f16", str(args.threads), str(STEPS)

    def torch(*more):
        return lambda out: [sys.executable, f"{HERE}/torch_txt2img.py", model, steps, threads, DTYPE, out, *more]

    def one(options):  # the last --dtype counts
        return lambda out: [tern, "txt2img", "--json", "-p", "a boat on the sea", "--steps", steps, "--sampler", "ddim", "--seed", "1", "--device",
                            "cpu", "--threads", threads, "--dtype", DTYPE, *options, "-o", out, model]

    known = {
        "pytorch": [Engine("PyTorch", DTYPE, None, torch()), Engine("PyTorch, DeepCache 3", DTYPE, None, torch("3"))],
        "openvino": [Engine("OpenVINO", DTYPE, None, lambda out: [args.openvino_python, f"{HERE}/openvino_txt2img.py", f"{args.work}/openvino", steps,
                                                                  threads, DTYPE, out])],
        "tern": [Engine(f"tern, {name}" if name else "tern", DTYPE, None, one(options), tern_is_step) for name, options in TERN.items()],
    }
    return [e for name in args.peers for e in known.get(name, [])]


def medians(rows, measure):
    return {row["name"]: statistics.median(row[measure]) for row in rows}


def table(rows, spread, seconds, gib):
    """Lines of Markdown. Speed is over tern's own job in bf16."""
    time, memory = medians(rows, "total"), medians(rows, "peak_resident")
    lines = [f"### Whole txt2img, 512x512, {STEPS} steps, computed in {DTYPE}, in int8 where a name begins with it, a fresh process each", "",
             "| | in all | times as fast as tern in bf16 | peak resident | of tern's in bf16 |", "|---|---|---|---|---|"]
    for row in rows:
        name = row["name"]
        faster, smaller = (f"{time['tern'] / time[name]:.2f}", f"{memory[name] / memory['tern']:.2f}") if "tern" in time else ("", "")
        lines.append(f"| {name} | {spread(row['total'], seconds)} | {faster} | {spread(row['peak_resident'], gib)} | {smaller} |")
    return lines


def panels(rows):
    """For the chart."""
    yield f"{STEPS} steps, the whole command", "s", list(medians(rows, "total").items())
    yield "peak resident memory", "GiB", [(name, value / 2**30) for name, value in medians(rows, "peak_resident").items()]
