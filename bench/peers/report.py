"""Turns the results of compare.py into a JSON file, a Markdown page and a chart, named after the processor."""
import json
import os
import re
import statistics
import subprocess
import time

import chart
import savings
from options import SAVINGS, XL

TITLES = {"text_encoder": "Text encoder, 2 x 77 ids", "unet": "UNet step, batch 2, 512x512", "vae_decoder": "VAE decode, 512x512",
          "unet_xl": "SDXL: UNet step, batch 2, 1024x1024"}
# What counts as whose figure: the better one.
NAMES = {"tern": ("tern",), "OpenVINO": ("OpenVINO", "OpenVINO, from its cache"), "PyTorch": ("PyTorch",), "stable-diffusion.cpp": ("stable-diffusion.cpp",)}
OTHERS = [name for name in NAMES if name != "tern"]
WITH_GOALS = "OpenVINO", "PyTorch"
README_BEGIN, README_END = "<!-- bench:begin -->", "<!-- bench:end -->"
# tern's figure over that of each one WITH_GOALS, at most
GOALS = [
    ("SDXL's UNet step", "unet_xl", "f32", 1, None), ("SDXL's UNet step", "unet_xl", "bf16", 1, None),
    ("UNet step", "unet", "f32", 0.80, 0.45), ("UNet step", "unet", "bf16", 0.90, 0.50),
    ("VAE decode", "vae_decoder", "f32", 0.60, 0.60), ("VAE decode", "vae_decoder", "bf16", 0.75, 0.75),
    ("text encoder", "text_encoder", "f32", None, None), ("text encoder", "text_encoder", "bf16", 0.80, 0.50),
    ("start to first step", "to_first_step", "f32", 0.5, 0.25), ("start to first step", "to_first_step", "bf16", 0.5, 0.25),
    ("peak memory, whole txt2img", "peak_resident", "f32", 0.5, 0.4), ("peak memory, whole txt2img", "peak_resident", "bf16", 0.5, 0.4),
]


def machine(args):
    facts = dict(re.findall(r"^([^:\n]+):\s+(.*)$", subprocess.run(["lscpu"], capture_output=True, text=True, check=True, env={**os.environ, "LC_ALL": "C"}).stdout, re.M))
    devices = subprocess.run([f"{args.build}/tools/tern/tern", "devices"], capture_output=True, text=True, check=True).stdout
    level = re.search(r"^cpu .*kernels: (\S+)", devices, re.M)
    flags = facts.get("Flags", "").split()
    return {
        "processor": facts.get("Model name", "unknown processor"), "family": facts.get("CPU family", "?"), "model": facts.get("Model", "?"),
        "instructions": [f for f in ("avx2", "avx512f", "avx512_bf16", "avx512_vnni", "avx512_fp16", "amx_bf16", "amx_int8") if f in flags],
        "cores": os.cpu_count(), "memory": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), "threads": args.threads,
        "kernel_level": level[1] if level else "?", "date": time.strftime("%Y-%m-%d"),
        "load_average": os.getloadavg()[0],
        "apart_ns": [],  # before each part, and at the end
    }


def apart(args):
    """Nanoseconds from one core to another; None: there is one core. A host may move the cores of a virtual machine."""
    return json.loads(subprocess.run([f"{args.build}/bench/bench_apart"], capture_output=True, text=True, check=True).stdout)["apart_ns"]


def file_name(m):
    """By what computes, too: a virtual machine may hide instructions of its processor."""
    name = re.sub(r"\((R|TM)\)|@.*| CPU", "", m["processor"])
    return re.sub(r"[^a-z0-9]+", "-", f"{name} {m['family']}-{m['model']} {m['kernel_level']}".lower()).strip("-")


def gib(n):
    return f"{n / 2**30:.2f} GiB"


def seconds(x):
    return f"{x:.3f} s" if x < 1 else f"{x:.2f} s"


def spread(values, form):
    if len(values) == 1:
        return form(values[0])
    return f"{form(statistics.median(values))} ({form(min(values))} … {form(max(values))})"


def values_of(result, measure, dtype):
    """{engine: all values} of a component's seconds, or of one measure of the whole txt2img."""
    if measure in TITLES:
        return {r["name"]: r["runs"] for r in result["parts"].get(measure, {}).get(dtype, [])}
    return {r["name"]: r[measure] for r in result["parts"].get("txt2img", {}).get(dtype, [])}


def median_of(values, engine):
    """None: it was not measured."""
    return min((statistics.median(values[n]) for n in NAMES[engine] if n in values), default=None)


def ratios(result):
    """tern's figure over that of each peer, with the goal."""
    rows = []
    for title, measure, dtype, *goals in GOALS:
        values = values_of(result, measure, dtype)
        tern = median_of(values, "tern")
        for peer in OTHERS:
            other = median_of(values, peer)
            if tern is not None and other is not None:
                rows.append({"measure": title, "dtype": dtype, "over": peer, "ratio": tern / other, "goal": dict(zip(WITH_GOALS, goals)).get(peer)})
    return rows


def ratio_table(rows):
    there = [peer for peer in OTHERS if any(r["over"] == peer for r in rows)]
    heads = ["", *(head for peer in there for head in (f"over {peer}'s", *(["goal"] if peer in WITH_GOALS else [])))]
    lines = ["### tern's figure over the others'", "", "|" + " |".join(f" {h}" if h else h for h in heads) + " |", "|---" * len(heads) + "|"]
    for title, _, dtype, *_ in GOALS:
        mine = {r["over"]: r for r in rows if (r["measure"], r["dtype"]) == (title, dtype)}
        if not mine:
            continue
        cells = [f"{title}, {dtype}"]
        for peer in there:
            r = mine.get(peer)
            cells.append(f"{r['ratio']:.2f}" if r else "")
            if peer in WITH_GOALS:
                cells.append(f"≤ {r['goal']:.2f}{'' if r['ratio'] <= r['goal'] else ', missed'}" if r and r["goal"] else "")
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def component_table(title, groups):
    lines = [f"### {title}", "", "| | median (least … most) | load | first run | peak resident |", "|---|---|---|---|---|"]
    for dtype, rows in groups.items():
        for r in rows:
            lines.append(f"| {r['name']} {dtype} | {spread(r['runs'], seconds)} | {r['load']:.2f} s | {r['first']:.2f} s | {gib(r['peak_resident'])} |")
    return lines


def whole_table(groups):
    lines = ["### Whole txt2img, 512x512, one step, a fresh process each", "",
             "| | command to first step | in all | peak resident |", "|---|---|---|---|"]
    for dtype, rows in groups.items():
        for r in rows:
            lines.append(f"| {r['name']} {dtype} | {spread(r['to_first_step'], seconds)} | {spread(r['total'], seconds)} | {spread(r['peak_resident'], gib)} |")
    return lines


def summary(result):
    """The short table of README.md: one line a measure."""
    m = result["machine"]
    names = [n for n in NAMES if any(median_of(values_of(result, g[1], g[2]), n) is not None for g in GOALS)]
    lines = [f"| {m['processor']}, {m['threads']} threads, {m['date']} | " + " | ".join(names) + " |", "|---|" + "---|" * len(names)]
    for title, measure, dtype, *_ in GOALS:
        values = values_of(result, measure, dtype)
        form = gib if measure == "peak_resident" else seconds
        medians = [median_of(values, n) for n in names]
        cells = ["" if m is None else form(m) for m in medians]
        if any(cells):
            lines.append(f"| {title}, {dtype} | " + " | ".join(cells) + " |")
    return lines


def model_of(parts):
    return " and ".join([n for n, there in (("Stable Diffusion 1.5", set(parts) - {"unet_xl"}), ("Stable Diffusion XL", "unet_xl" in parts)) if there])


def distance(ns):
    known = [x for x in ns if x is not None]
    return [f"- from one core to the other {min(known)} … {max(known)} ns"] if known else []


def turns(result):
    """How often, and who beside whom."""
    if list(result["parts"]) == [SAVINGS]:
        n = result["runs"]
        return [f"- medians of {n} jobs of each, one behind the other" if n > 1 else "- one job of each, one behind the other"]
    return [f"- medians of {result['runs']} runs (text encoder {result['text_runs']}), one of each engine in turn, each behind {result['pause']:g} s in "
            "which none runs. f32 and bf16 are two groups, one after the other, since the processes of both do not fit into memory at once: compare "
            "engines within a dtype."]


def page(result, name):
    m, parts = result["machine"], result["parts"]
    versions = {r["name"]: r["version"] for part in parts.values() for rows in part.values() for r in rows if "version" in r and "," not in r["name"]}
    lines = [f"# {m['processor']}", "",
             f"{model_of(parts)} at full size with random weights in f16. Made by `bench/peers/run`; how it is measured "
             "stands in [bench/README.md](../../bench/README.md).", "",
             f"- {m['date']}; {m['threads']} threads of {m['cores']} cores; {gib(m['memory'])} of memory; load {m['load_average']:.1f} at the start",
             f"- processor family {m['family']}, model {m['model']}; {', '.join(m['instructions'])}; tern's kernels: {m['kernel_level']}",
             *distance(m["apart_ns"]),
             "- " + ", ".join(f"{k} {v}" for k, v in sorted(versions.items())) if versions else "- no other engine told its version",
             *turns(result), ""]
    if rows := ratios(result):
        lines += [*ratio_table(rows), "", "Start: OpenVINO's better one, from the exported file or from its cache of compiled models.", ""]
    lines += [f"![bars]({name}.svg)"]
    for part, title in TITLES.items():
        if part in parts:
            lines += ["", *component_table(title, parts[part])]
    if "txt2img" in parts:
        lines += ["", *whole_table(parts["txt2img"])]
    if SAVINGS in parts:
        lines += ["", *savings.table(parts[SAVINGS][savings.DTYPE], spread, seconds, gib)]
    return lines


def panels(result):
    """For the chart: (title, unit, [(engine and dtype, value)]) for each measure that was taken."""
    titles = dict((g[1], g[0]) for g in GOALS)
    for measure, title in titles.items():
        memory = measure == "peak_resident"
        bars = [(f"{name} {dtype}", statistics.median(v) / (2**30 if memory else 1)) for dtype in ("f32", "bf16")
                for name, v in values_of(result, measure, dtype).items()]
        if bars:
            yield title, "GiB" if memory else "s", bars
    for rows in filter(None, result["parts"].get(SAVINGS, {}).values()):
        yield from savings.panels(rows)


def put_into_readme(readme, lines):
    with open(readme) as f:
        old = f.read()
    table = "\n".join([README_BEGIN, *lines, README_END])
    new, places = re.subn(re.escape(README_BEGIN) + ".*?" + re.escape(README_END), lambda _: table, old, flags=re.S)
    if not places:
        print(f"{readme} has no lines {README_BEGIN} and {README_END}: the table was not put there")
        return
    write_whole(readme, new)


def write_whole(path, text):
    """All of it, or nothing."""
    with open(path + ".new", "w") as f:
        f.write(text)
    os.replace(path + ".new", path)


def write(result, folder, readme):
    os.makedirs(folder, exist_ok=True)
    only = list(result["parts"])
    name = file_name(result["machine"]) + ("-sdxl" if only == [XL] else f"-{SAVINGS}" if only == [SAVINGS] else "")
    path = os.path.join(folder, name)
    result["ratios"] = ratios(result)
    write_whole(path + ".json", json.dumps(result, indent=1) + "\n")
    write_whole(path + ".svg", chart.bars(result["machine"]["processor"], list(panels(result))))
    text = "\n".join(page(result, name)) + "\n"
    write_whole(path + ".md", text)
    print(text + f"written: {path}.md, .json, .svg")
    if readme:
        put_into_readme(readme, summary(result))
