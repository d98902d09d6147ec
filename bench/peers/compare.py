"""Runs tern beside PyTorch, OpenVINO, stable-diffusion.cpp and other engines: a process each, a run of each in turn. usage: see bench/README.md"""
import os
import shutil
import sys

import report
import savings
from engines import PAUSE, Failed, LeftOut, Peer, cache, engines, once
from options import ROOT, SAVINGS, XL, parse

TEXT_RUNS = 3  # of the text encoder for one of the others: it takes a fiftieth of their time


class Takers:
    """Those that take turns in a part. Who fails leaves it."""

    def __init__(self, part, dtype):
        self.part, self.dtype, self.there, self.failures = part, dtype, [], 0

    def leave_out(self, name, why):
        print(f"{name} leaves out {self.part} in {self.dtype}: {why}", file=sys.stderr)
        self.failures += isinstance(why, Failed)

    def try_each(self, takers, name_of, action):
        """[(taker, what action made of it)] of those that did not fail."""
        made = []
        for taker in takers:
            try:
                made.append((taker, action(taker)))
            except LeftOut as why:
                self.leave_out(name_of(taker), why)
        return made

    def turn(self, first, name_of, action):
        """One run of each; which one is first changes from turn to turn."""
        if self.there:
            k = first % len(self.there)
            went = {id(t) for t, _ in self.try_each(self.there[k:] + self.there[:k], name_of, action)}
            self.there = [t for t in self.there if id(t) in went]


def component(args, name, batch, runs):
    """All engines of a dtype load, then take turns. Then the next dtype: there is no memory for all. Also how many failed."""
    result, failures = {}, 0
    for dtype in args.dtypes:
        takers, peers = Takers(name, dtype), []
        chosen = [e for e in engines(args, dtype) if e.component(name, str(batch))]
        try:
            takers.try_each(chosen, lambda e: e.name, lambda e: peers.append(Peer(e.name, e.component(name, str(batch)), args.limit)))
            takers.there = list(peers)
            for i in range(runs):
                takers.turn(i, lambda p: p.name, lambda p: p.run())
            result[dtype] = [row for _, row in takers.try_each(takers.there, lambda p: p.name, lambda p: p.finish())]
        finally:
            for peer in peers:
                peer.process.drop()
        failures += takers.failures
    return result, failures


def collected(takers):
    """Of fresh processes: all values of each measure."""
    return [{"name": e.name, **{key: str(value) if key == "version" else [m[key] for m in measured] for key, value in measured[0].items()}}
            for e, measured in takers.there]


def txt2img(args, runs):
    """Fresh processes, in turns. The first of each is not counted: it warms the file cache and fills OpenVINO's and tern's caches."""
    result, failures, out = {}, 0, f"{args.work}/out.png"
    for dtype in args.dtypes:
        takers = Takers("txt2img", dtype)
        try:
            shutil.rmtree(cache(args), ignore_errors=True)
            tried = takers.try_each(engines(args, dtype), lambda e: e.name, lambda e: once(e, out, args.limit))
            takers.there = [(e, []) for e, _ in tried]
            for i in range(runs):
                takers.turn(i, lambda row: row[0].name, lambda row: row[1].append(once(row[0], out, args.limit)))
        finally:
            shutil.rmtree(cache(args), ignore_errors=True)
            if os.path.exists(out):
                os.remove(out)
        result[dtype] = collected(takers)
        failures += takers.failures
    return result, failures


def long_jobs(args, runs):
    """Likewise, but each takes minutes: all are counted."""
    takers, out = Takers(SAVINGS, savings.DTYPE), f"{args.work}/out.png"
    takers.there = [(e, []) for e in savings.engines(args)]
    try:
        for i in range(runs):
            takers.turn(i, lambda row: row[0].name, lambda row: row[1].append(once(row[0], out, args.limit)))
    finally:
        if os.path.exists(out):
            os.remove(out)
    return {savings.DTYPE: collected(takers)}, takers.failures


def read_everything(folder):
    """Warms the file cache."""
    for at, _, files in os.walk(folder):
        for name in files:
            with open(os.path.join(at, name), "rb") as f:
                while f.read(1 << 24):
                    pass


def measure(args, result):
    """Adds part after part to the result; how many engines failed."""
    parts = {
        "text_encoder": lambda: component(args, "text_encoder", 2, TEXT_RUNS * args.runs),
        "unet": lambda: component(args, "unet", 2, args.runs),
        "vae_decoder": lambda: component(args, "vae_decoder", 1, args.runs),
        "txt2img": lambda: txt2img(args, args.runs),
        XL: lambda: component(args, XL, 2, args.runs),
        SAVINGS: lambda: long_jobs(args, args.runs),
    }
    apart, failures = result["machine"]["apart_ns"], 0
    for name in args.only:
        apart.append(report.apart(args))
        result["parts"][name], failed = parts[name]()
        failures += failed
    apart.append(report.apart(args))
    return failures


def main():
    args = parse()
    for folder in ("sdxl-f16",) if args.only == [XL] else ("sd15-f16", "openvino"):
        read_everything(f"{args.work}/{folder}")
    result = {"machine": report.machine(args), "runs": args.runs, "text_runs": TEXT_RUNS * args.runs, "pause": PAUSE, "parts": {}}
    failures = None
    try:
        failures = measure(args, result)
    finally:  # what was measured until then is worth more than the error alone
        whole = args.whole and failures == 0
        folder = args.out or (os.path.join(ROOT, "docs/bench") if whole else args.work)
        if any(rows for groups in result["parts"].values() for rows in groups.values()):
            report.write(result, folder, os.path.join(ROOT, "README.md") if args.readme and whole else None)
    if failures:
        sys.exit(f"{failures} times an engine failed: see above")


main()
