"""Turns the results of compare.py into a JSON file and a Markdown page, named after the processor."""
import json
import os
import re
import subprocess
import time

TITLES = {"text_encoder": "Text encoder, 2 x 77 ids", "unet": "UNet step, batch 2, 512x512", "vae_decoder": "VAE decode, 512x512"}
README_BEGIN, README_END = "<!-- bench:begin -->", "<!-- bench:end -->"


def machine(args):
    facts = dict(re.findall(r"^([^:\n]+):\s+(.*)$", subprocess.run(["lscpu"], capture_output=True, text=True, check=True).stdout, re.M))
    devices = subprocess.run([f"{args.build}/tools/tern/tern", "devices"], capture_output=True, text=True, check=True).stdout
    level = re.search(r"^cpu .*kernels: (\S+)", devices, re.M)
    flags = facts.get("Flags", "").split()
    return {
        "processor": facts.get("Model name", "unknown processor"), "family": facts.get("CPU family", "?"), "model": facts.get("Model", "?"),
        "instructions": [f for f in ("avx2", "avx512f", "avx512_bf16", "avx512_vnni", "avx512_fp16", "amx_bf16", "amx_int8") if f in flags],
        "cores": os.cpu_count(), "memory": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), "threads": args.threads,
        "kernel_level": level[1] if level else "?", "date": time.strftime("%Y-%m-%d"),
        "load_average": os.getloadavg()[0],
    }


def file_name(m):
    name = re.sub(r"\((R|TM)\)|@.*| CPU", "", m["processor"])
    return re.sub(r"[^a-z0-9]+", "-", f"{name} {m['family']}-{m['model']}".lower()).strip("-")


def gib(n):
    return f"{n / 2**30:.2f} GiB"


def component_table(title, rows):
    base = rows[0]["median"]
    lines = [f"### {title}", "", "| | median | least … most | of PyTorch's | load | first run | peak resident |", "|---|---|---|---|---|---|---|"]
    for r in rows:
        lines.append(f"| {r['name']} | {r['median']:.3f} s | {min(r['runs']):.3f} … {max(r['runs']):.3f} s | {r['median'] / base:.2f} | "
                     f"{r['load']:.2f} s | {r['first']:.2f} s | {gib(r['peak_resident'])} |")
    return lines


def whole_table(rows):
    lines = ["### Whole txt2img, 512x512, 2 steps, a fresh process each", "",
             "| | command to first step | peak resident | of PyTorch's, same file |", "|---|---|---|---|"]
    for i, r in enumerate(rows):
        base = rows[i - i % 2]["peak_resident"]
        lines.append(f"| {r['name']} | {r['to_first_step']:.2f} s | {gib(r['peak_resident'])} | {r['peak_resident'] / base:.2f} |")
    return lines


def summary(result):
    """The short table of README.md: one line a measure, tern beside PyTorch."""
    m, parts = result["machine"], result["parts"]
    lines = [f"| {m['processor']}, {m['threads']} threads, f32, {m['date']} | tern | PyTorch |", "|---|---|---|"]
    for name in "unet", "vae_decoder", "text_encoder":
        if name in parts:
            torch, tern = parts[name][0], parts[name][1]
            lines.append(f"| {TITLES[name]} | {tern['median']:.2f} s | {torch['median']:.2f} s |")
    if "txt2img" in parts:
        for i, dtype in enumerate(("f32", "f16")):
            torch, tern = parts["txt2img"][2 * i], parts["txt2img"][2 * i + 1]
            lines.append(f"| Command to first step, {dtype} file | {tern['to_first_step']:.1f} s | {torch['to_first_step']:.1f} s |")
            lines.append(f"| Peak memory of txt2img, {dtype} file | {gib(tern['peak_resident'])} | {gib(torch['peak_resident'])} |")
    return lines


def page(result):
    m, parts = result["machine"], result["parts"]
    lines = [f"# {m['processor']}", "",
             "Stable Diffusion 1.5 at full size with random weights, computed in f32. Made by `bench/peers/run`; how it is measured stands in "
             "[bench/README.md](../../bench/README.md).", "",
             f"- {m['date']}; {m['threads']} threads of {m['cores']} cores; {gib(m['memory'])} of memory; load {m['load_average']:.1f} at the start",
             f"- processor family {m['family']}, model {m['model']}; {', '.join(m['instructions'])}; tern's kernels: {m['kernel_level']}"]
    if "unet" in parts and "version" in parts["unet"][0]:
        lines.append(f"- PyTorch {parts['unet'][0]['version']}, channels_last")
    for name, title in TITLES.items():
        if name in parts:
            lines += ["", *component_table(title, parts[name])]
    if "txt2img" in parts:
        lines += ["", *whole_table(parts["txt2img"])]
    return lines


def write(result, folder, readme):
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, file_name(result["machine"]))
    with open(path + ".json", "w") as f:
        json.dump(result, f, indent=1)
        f.write("\n")
    text = "\n".join(page(result)) + "\n"
    with open(path + ".md", "w") as f:
        f.write(text)
    print(text + f"written: {path}.md, {path}.json")
    if readme:
        with open(readme) as f:
            old = f.read()
        table = "\n".join([README_BEGIN, *summary(result), README_END])
        if README_BEGIN in old:
            new = re.sub(re.escape(README_BEGIN) + ".*?" + re.escape(README_END), lambda _: table, old, flags=re.S)
            with open(readme, "w") as f:
                f.write(new)
        else:
            print(f"{readme} has no line {README_BEGIN}: the table was not put there")
