"""What a process under compare.py says: seconds of loading and of a first run, then of one run for each line "run" on standard input."""
import json
import sys
import time


def peak_resident():
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) << 10 for line in f if line.startswith("VmHWM"))


def timed(f):
    """Seconds: what f returns, if that is a float, else what it took."""
    start = time.monotonic()
    told = f()
    return told if isinstance(told, float) else time.monotonic() - start


def serve(load, run, **about):
    """load: seconds; run: one run, which may return the seconds of what counts of it; about: what else the last line tells."""
    print(json.dumps({"load": load, "first": timed(run)}), flush=True)
    for line in sys.stdin:
        if not line.startswith("run"):
            break
        print(json.dumps({"run": timed(run)}), flush=True)
    print(json.dumps({"peak_resident": peak_resident(), **about}), flush=True)
