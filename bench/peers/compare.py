"""Runs tern beside PyTorch, OpenVINO and other engines: a process each, a run of each in turn. usage: see bench/README.md"""
import argparse
import json
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import time

import report

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
PAUSE = 0.1  # seconds before each turn: threads of the engine before may still spin for work, PyTorch's for 5 ms
TEXT_RUNS = 3  # of the text encoder for one of the others: it takes a fiftieth of their time
STEPS = 1  # of the whole txt2img: memory and start do not depend on them
DTYPES = "f32", "bf16"


class Engine:
    """What is compared, computing in one dtype. component(name, batch): the command of a process that answers each line "run"; whole(out): that of one
    txt2img, which ends; is_step tells the line that it prints when its first UNet step begins."""

    def __init__(self, name, dtype, component, whole, is_step=lambda line: line.startswith("step")):
        self.name, self.dtype, self.component, self.whole, self.is_step = name, dtype, component, whole, is_step


XL = "unet_xl"  # the UNet of SDXL at 1024x1024: only when it is asked for, and without PyTorch, for which there is no memory


class Skipped(Exception):
    """An engine does not do what it was asked for; the text says why."""


class Peer:
    """A process that answers each line "run" with the seconds of one run."""

    def __init__(self, name, command):
        self.name, self.runs = name, []
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.start = self.read()
        if "skip" in self.start:
            self.process.stdin.close()
            self.process.wait()
            raise Skipped(self.start["skip"])

    def read(self):
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name} ended with code {self.process.wait()}")
        return json.loads(line)

    def run(self):
        time.sleep(PAUSE)
        print("run", file=self.process.stdin, flush=True)
        self.runs.append(self.read()["run"])

    def finish(self):
        self.process.stdin.close()
        end = self.read()
        self.process.wait()
        return {"name": self.name, "median": statistics.median(self.runs), "runs": self.runs, **self.start, **end}


def tern_is_step(line):
    event = json.loads(line)
    return event.get("event") == "progress" and event.get("stage") == "sample" and event.get("done") == 0


def engines(args, dtype):
    """Those of one group: all compute in that dtype, from weights in f16."""
    tern, model, exported, threads = f"{args.build}/tools/tern/tern", f"{args.work}/sd15-f16", f"{args.work}/openvino", str(args.threads)
    vino = [args.openvino_python]
    known = {
        "pytorch": [Engine("PyTorch", dtype,
                           lambda part, batch: None if part == XL else
                           [sys.executable, f"{HERE}/torch_component.py", model, part, batch, threads, "cpu", dtype],
                           lambda out: [sys.executable, f"{HERE}/torch_txt2img.py", model, str(STEPS), threads, dtype, out])],
        "openvino": [Engine("OpenVINO", dtype, lambda part, batch: [*vino, f"{HERE}/openvino_component.py", exported, part, threads, dtype],
                            lambda out: [*vino, f"{HERE}/openvino_txt2img.py", exported, str(STEPS), threads, dtype, out]),
                     Engine("OpenVINO, from its cache", dtype, None,
                            lambda out: [*vino, f"{HERE}/openvino_txt2img.py", exported, str(STEPS), threads, dtype, out, cache(args)])],
        "tern": [Engine("tern", dtype,
                        lambda part, batch: [f"{args.build}/bench/bench_model", *tern_component(args, part), "--batch", batch, "--threads", threads,
                                             "--dtype", dtype],
                        lambda out: [tern, "txt2img", "--json", "-p", "a boat on the sea", "--steps", str(STEPS), "--seed", "1", "--device", "cpu",
                                     "--threads", threads, "--dtype", dtype, "-o", out, model], tern_is_step)],
    }
    chosen = [e for name in args.peers.split(",") for e in known[name]]
    for name, command in (x.split("=", 1) for x in args.engine):
        words = shlex.split(command)
        chosen.append(Engine(name, dtype, lambda part, batch, w=words: [*w, part, batch, threads, dtype, model],
                             lambda out, w=words: [*w, "txt2img", str(STEPS), threads, dtype, model, out]))
    return chosen


def tern_component(args, part):
    if part == XL:
        return [f"{args.work}/sdxl-f16", "unet", "--arch", "sdxl", "--width", "1024", "--height", "1024"]
    return [f"{args.work}/sd15-f16", part]


def cache(args):
    return f"{args.work}/openvino-cache"


def component(args, name, batch, runs):
    """All engines of a dtype load, then take turns. Which one is first changes from round to round. Then the next dtype: there is no memory for all."""
    result = {}
    for dtype in args.dtypes.split(","):
        peers = []
        for e in engines(args, dtype):
            command = e.component and e.component(name, str(batch))
            if command:
                try:
                    peers.append(Peer(e.name, command))
                except Skipped as why:
                    print(f"{e.name} leaves out {name} in {dtype}: {why}", file=sys.stderr)
        for i in range(runs):
            for k in range(len(peers)):
                peers[(i + k) % len(peers)].run()
        result[dtype] = [p.finish() for p in peers]
    return result


def once(engine, out):
    """One fresh process: seconds to the first step, seconds in all, most resident memory."""
    start = time.monotonic()
    process = subprocess.Popen(engine.whole(out), stdout=subprocess.PIPE, text=True)
    first = skip = None
    for line in process.stdout:
        if first is None and line.startswith('{"skip"'):
            skip = json.loads(line)["skip"]
        elif first is None and engine.is_step(line):
            first = time.monotonic() - start
    _, status, usage = os.wait4(process.pid, 0)
    if skip:
        raise Skipped(skip)
    if status or first is None:
        raise SystemExit(f"{engine.name}: txt2img failed")
    return {"to_first_step": first, "total": time.monotonic() - start, "peak_resident": usage.ru_maxrss << 10}


def txt2img(args, runs):
    """Fresh processes, in turns. The first of each is not counted: it warms the file cache and fills OpenVINO's and tern's caches."""
    result, out = {}, f"{args.work}/out.png"
    for dtype in args.dtypes.split(","):
        shutil.rmtree(cache(args), ignore_errors=True)
        rows = []
        for e in engines(args, dtype):
            try:
                once(e, out)
                rows.append((e, []))
            except Skipped as why:
                print(f"{e.name} leaves out txt2img in {dtype}: {why}", file=sys.stderr)
        for i in range(runs):
            for k in range(len(rows)):
                e, measured = rows[(i + k) % len(rows)]
                measured.append(once(e, out))
        result[dtype] = [{"name": e.name, **{key: [m[key] for m in measured] for key in measured[0]}} for e, measured in rows]
        shutil.rmtree(cache(args), ignore_errors=True)
    if os.path.exists(out):
        os.remove(out)
    return result


def read_everything(folder):
    """Warms the file cache."""
    for at, _, files in os.walk(folder):
        for name in files:
            with open(os.path.join(at, name), "rb") as f:
                while f.read(1 << 24):
                    pass


def some_of(parser, option, given, known):
    if unknown := set(given.split(",")) - set(known):
        parser.error(f"{option}: {', '.join(sorted(unknown))}: expected some of {', '.join(known)}")


def main():
    parts = {
        "text_encoder": lambda: component(args, "text_encoder", 2, TEXT_RUNS * args.runs),
        "unet": lambda: component(args, "unet", 2, args.runs),
        "vae_decoder": lambda: component(args, "vae_decoder", 1, args.runs),
        "txt2img": lambda: txt2img(args, args.runs),
    }
    usual = ",".join(parts)
    parts[XL] = lambda: component(args, XL, 2, args.runs)
    peers = "pytorch", "openvino", "tern"
    parser = argparse.ArgumentParser(prog="bench/peers/run", description=__doc__)
    parser.add_argument("--build", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--work", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--openvino-python", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--runs", type=int, default=5, help="timed runs of each engine (default 5)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", default=usual, help=f"some of {', '.join(parts)} (default {usual})")
    parser.add_argument("--dtypes", default=",".join(DTYPES), help="some of " + ", ".join(DTYPES))
    parser.add_argument("--peers", default=",".join(peers), help="some of " + ", ".join(peers))
    parser.add_argument("--engine", action="append", default=[], metavar="NAME=COMMAND", help="one more engine; its protocol: bench/README.md")
    parser.add_argument("--readme", action="store_true", help="put the table into README.md, too")
    parser.add_argument("--out", default=os.path.join(ROOT, "docs/bench"), help="folder of the page (default docs/bench)")
    args = parser.parse_args()
    some_of(parser, "--only", args.only, parts)
    some_of(parser, "--dtypes", args.dtypes, DTYPES)
    some_of(parser, "--peers", args.peers, peers)
    if args.runs < 1 or args.threads < 1:
        parser.error("--runs, --threads: expected numbers from 1")
    if any("=" not in e for e in args.engine):
        parser.error("--engine: expected NAME=COMMAND")
    for folder in ("sdxl-f16",) if args.only == XL else ("sd15-f16", "openvino"):
        read_everything(f"{args.work}/{folder}")
    machine = report.machine(args)
    result = {"machine": machine, "runs": args.runs, "text_runs": TEXT_RUNS * args.runs, "pause": PAUSE, "parts": {}}
    for name in args.only.split(","):
        machine["apart_ns"].append(report.apart(args))
        result["parts"][name] = parts[name]()
    machine["apart_ns"].append(report.apart(args))
    report.write(result, args.out, os.path.join(ROOT, "README.md") if args.readme else None)


main()
