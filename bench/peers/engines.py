"""What is compared: commands of engines, and processes that answer. What an engine does wrong leaves it out of a part, with the reason."""
import json
import os
import selectors
import statistics
import subprocess
import sys
import time

from options import XL

HERE = os.path.dirname(os.path.abspath(__file__))
PAUSE = 0.1  # seconds before each turn: threads of the engine before may still spin for work, PyTorch's for 5 ms
STEPS = 1  # of the whole txt2img: memory and start do not depend on them


class LeftOut(Exception):
    """An engine does not do what it was asked for; the text says why."""


class Failed(LeftOut):
    """It should have."""


class Engine:
    """Computes in one dtype. component(name, batch): the command of a process that answers each line "run", or None; whole(out): that of one txt2img,
    which ends; is_step tells the line that it prints when its first UNet step begins."""

    def __init__(self, name, dtype, component, whole, is_step=lambda line: line.startswith("step")):
        self.name, self.dtype, self.component, self.whole, self.is_step = name, dtype, component, whole, is_step


def tern_is_step(line):
    event = parsed(line)
    return event.get("event") == "progress" and event.get("stage") == "sample" and event.get("done") == 0


def tern_component(args, part):
    if part == XL:
        return [f"{args.work}/sdxl-f16", "unet", "--arch", "sdxl", "--width", "1024", "--height", "1024"]
    return [f"{args.work}/sd15-f16", part]


def cache(args):
    return f"{args.work}/openvino-cache"


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
                     Engine("OpenVINO, from its cache", dtype, lambda part, batch: None,
                            lambda out: [*vino, f"{HERE}/openvino_txt2img.py", exported, str(STEPS), threads, dtype, out, cache(args)])],
        "sdcpp": [Engine("stable-diffusion.cpp", dtype,
                         lambda part, batch: None if part == XL else [args.sdcpp_python, f"{HERE}/sdcpp_component.py", model, part, threads, dtype],
                         lambda out: [args.sdcpp_python, f"{HERE}/sdcpp_txt2img.py", model, str(STEPS), threads, dtype, out])],
        "tern": [Engine("tern", dtype,
                        lambda part, batch: [f"{args.build}/bench/bench_model", *tern_component(args, part), "--batch", batch, "--threads", threads,
                                             "--dtype", dtype],
                        lambda out: [tern, "txt2img", "--json", "-p", "a boat on the sea", "--steps", str(STEPS), "--seed", "1", "--device", "cpu",
                                     "--threads", threads, "--dtype", dtype, "-o", out, model], tern_is_step)],
    }
    chosen = [e for name in args.peers for e in known[name]]
    for name, words in args.engine:
        chosen.append(Engine(name, dtype, lambda part, batch, w=words: None if part == XL else [*w, part, batch, threads, dtype, model],
                             lambda out, w=words: [*w, "txt2img", str(STEPS), threads, dtype, model, out]))
    return chosen


def parsed(line):
    try:
        value = json.loads(line)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise Failed(f"expected a JSON object, found {line.strip()[:80]!r}")
    return value


class Process:
    """One that prints lines, each within `limit` seconds."""

    def __init__(self, command, limit):
        self.limit, self.rest = limit, b""
        try:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        except OSError as why:
            raise Failed(str(why)) from why
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.process.stdout, selectors.EVENT_READ)

    def line(self):
        """The next one; None at the end."""
        until = time.monotonic() + self.limit
        while b"\n" not in self.rest:
            if not self.selector.select(max(0, until - time.monotonic())):
                raise Failed(f"no answer in {self.limit:g} s")
            more = os.read(self.process.stdout.fileno(), 1 << 16)
            if not more:
                rest, self.rest = self.rest, b""
                return rest.decode(errors="replace") if rest else None
            self.rest += more
        line, self.rest = self.rest.split(b"\n", 1)
        return line.decode(errors="replace")

    def say(self, text):
        try:
            self.process.stdin.write(f"{text}\n".encode())
            self.process.stdin.flush()
        except OSError as why:
            raise Failed(f"it takes no more lines: {why}") from why

    def stop_asking(self):
        try:
            self.process.stdin.close()
        except OSError:
            pass

    def ended(self):
        """What it used. It has closed its output."""
        until = time.monotonic() + self.limit
        while True:
            pid, status, usage = os.wait4(self.process.pid, os.WNOHANG)
            if pid:
                break
            if time.monotonic() > until:
                raise Failed(f"it does not end in {self.limit:g} s")
            time.sleep(0.001)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        if self.process.returncode:
            raise Failed(f"it ended with code {self.process.returncode}")
        return usage

    def drop(self):
        self.stop_asking()
        if self.process.returncode is None:
            self.process.kill()
            self.process.wait()
        self.selector.close()
        self.process.stdout.close()


class Peer:
    """A process that answers each line "run" with the seconds of one run."""

    def __init__(self, name, command, limit):
        self.name, self.runs = name, []
        self.process = Process(command, limit)
        try:
            self.start = self.read("load", "first", or_else="skip")
            if "skip" in self.start:
                raise LeftOut(self.start["skip"])
        except BaseException:  # Ctrl-C, too
            self.process.drop()
            raise

    def read(self, *keys, or_else=None):
        line = self.process.line()
        if line is None:
            self.process.ended()
            raise Failed("it ended before it had answered")
        answer = parsed(line)
        missing = [key for key in keys if not isinstance(answer.get(key), (int, float))]
        if missing and or_else not in answer:
            raise Failed(f"expected a number for {', '.join(missing)}, found {line.strip()[:80]!r}")
        return answer

    def run(self):
        time.sleep(PAUSE)
        try:
            self.process.say("run")
            self.runs.append(self.read("run")["run"])
        except Failed:
            self.process.drop()  # else it would compute beside the others
            raise

    def finish(self):
        self.process.stop_asking()
        end = self.read("peak_resident")
        self.process.ended()
        self.process.drop()
        return {**self.start, **end, "name": self.name, "median": statistics.median(self.runs), "runs": self.runs}


def once(engine, out, limit):
    """One fresh process: seconds to the first step, seconds in all, most resident memory."""
    start = time.monotonic()
    process = Process(engine.whole(out), limit)
    process.stop_asking()
    first, told = None, {}
    try:
        while (line := process.line()) is not None:
            if first is None and line.startswith('{"skip"'):
                raise LeftOut(parsed(line)["skip"])
            if first is None and line.startswith('{"version"'):
                told = {"version": parsed(line)["version"]}
            if first is None and engine.is_step(line):
                first = time.monotonic() - start
        usage = process.ended()
        total = time.monotonic() - start
    finally:
        process.drop()
    if first is None:
        raise Failed("it never said that its first step begins")
    return {"to_first_step": first, "total": total, "peak_resident": usage.ru_maxrss << 10, **told}
