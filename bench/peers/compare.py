"""Runs tern and PyTorch side by side: one process each, one run of each in turn. usage: see bench/README.md"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

import report

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
STEPS = 2  # of the whole txt2img: memory and start do not depend on them


class Peer:
    """A process that answers each line "run" with the seconds of one run."""

    def __init__(self, name, command):
        self.name, self.runs = name, []
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.start = self.read()

    def read(self):
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name} ended with code {self.process.wait()}")
        return json.loads(line)

    def run(self):
        print("run", file=self.process.stdin, flush=True)
        self.runs.append(self.read()["run"])

    def finish(self):
        self.process.stdin.close()
        end = self.read()
        self.process.wait()
        return {"name": self.name, "median": statistics.median(self.runs), "runs": self.runs, **self.start, **end}


def component(args, name, batch, runs):
    """All peers load, then take turns. Which one is first changes from round to round."""
    tern = os.path.join(args.build, "bench/bench_model")
    size = ["--batch", str(batch), "--threads", str(args.threads)]
    peers = [
        Peer("PyTorch f32", [sys.executable, f"{HERE}/torch_component.py", f"{args.work}/sd15-f32", name, str(batch), str(args.threads)]),
        Peer("tern f32, file f32", [tern, f"{args.work}/sd15-f32", name, *size]),
        Peer("tern f32, file f16", [tern, f"{args.work}/sd15-f16", name, *size]),
    ]
    for i in range(runs):
        for k in range(len(peers)):
            peers[(i + k) % len(peers)].run()
    return [p.finish() for p in peers]


def whole(name, command, is_step):
    """One fresh process: seconds to the first step, seconds in all, most resident memory."""
    start = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    first = None
    for line in process.stdout:
        if first is None and is_step(line):
            first = time.monotonic() - start
    _, status, usage = os.wait4(process.pid, 0)
    if status or first is None:
        raise SystemExit(f"{name} failed")
    return {"name": name, "to_first_step": first, "total": time.monotonic() - start, "peak_resident": usage.ru_maxrss << 10}


def tern_is_step(line):
    event = json.loads(line)
    return event.get("event") == "progress" and event.get("stage") == "sample" and event.get("done") == 0


def txt2img(args):
    out = f"{args.work}/out.png"
    tern = [f"{args.build}/tools/tern/tern", "txt2img", "--json", "-p", "a boat on the sea", "--steps", str(STEPS), "--seed", "1",
            "--threads", str(args.threads), "-o", out]
    torch = [sys.executable, f"{HERE}/torch_txt2img.py"]
    rows = []
    for dtype in "f32", "f16":
        rows.append(whole(f"PyTorch f32, file {dtype}", torch + [f"{args.work}/sd15-{dtype}", str(STEPS), str(args.threads), out],
                          lambda line: line.startswith("step")))
        rows.append(whole(f"tern f32, file {dtype}", tern + [f"{args.work}/sd15-{dtype}"], tern_is_step))
    os.remove(out)
    return rows


def read_everything(folder):
    """Warms the file cache."""
    for at, _, files in os.walk(folder):
        for name in files:
            with open(os.path.join(at, name), "rb") as f:
                while f.read(1 << 24):
                    pass


def main():
    parts = {
        "text_encoder": lambda: component(args, "text_encoder", 2, args.runs + 2),
        "unet": lambda: component(args, "unet", 2, args.runs),
        "vae_decoder": lambda: component(args, "vae_decoder", 1, args.runs),
        "txt2img": lambda: txt2img(args),
    }
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", required=True)
    parser.add_argument("--work", required=True)
    parser.add_argument("--runs", type=int, default=5, help="timed runs of each peer (default 5)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", default=",".join(parts), help="some of " + ", ".join(parts))
    parser.add_argument("--readme", action="store_true", help="put the table into README.md, too")
    parser.add_argument("--out", default=os.path.join(ROOT, "docs/bench"))
    args = parser.parse_args()
    chosen = args.only.split(",")
    if unknown := set(chosen) - set(parts):
        parser.error(f"--only: {', '.join(sorted(unknown))}: expected some of {', '.join(parts)}")
    for dtype in "f16", "f32":
        read_everything(f"{args.work}/sd15-{dtype}")
    result = {"machine": report.machine(args), "parts": {name: parts[name]() for name in chosen}}
    report.write(result, args.out, os.path.join(ROOT, "README.md") if args.readme else None)


main()
