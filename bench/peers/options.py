"""The options of bench/peers/run, and what they need: checked before anything is fetched, built or measured. Standard library only.
As a program it prints a word for each thing to set up, or what is wrong with the options."""
import argparse
import os
import shlex
import shutil

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
XL = "unet_xl"  # the UNet of SDXL at 1024x1024: only when it is asked for, and without PyTorch, for which there is no memory
SAVINGS = "savings"  # jobs of 50 steps, of which each takes minutes: only when it is asked for
USUAL = "text_encoder", "unet", "vae_decoder", "txt2img"
PARTS = *USUAL, XL, SAVINGS
DTYPES = "f32", "bf16"
PEERS = {"pytorch": ("PyTorch",), "openvino": ("OpenVINO", "OpenVINO, from its cache"), "sdcpp": ("stable-diffusion.cpp",), "tern": ("tern",)}
NEEDED = {SAVINGS: {"pytorch", "openvino", "tern"}, XL: {"openvino", "tern"}}  # parts with pages of their own, in bf16: peers that these have
ALONE = [[part] for part in NEEDED]


def some_of(parser, option, given, known):
    words = given.split(",")
    if unknown := set(words) - set(known):
        parser.error(f"{option}: {', '.join(sorted(unknown)) or 'nothing'}: expected some of {', '.join(known)}")
    if len(set(words)) < len(words):
        parser.error(f"{option}: {given}: expected each once")
    return words


def other_engines(parser, given):
    """[(name, words of its command)]"""
    taken, engines = {name.lower() for names in PEERS.values() for name in names}, []
    for text in given:
        name, equals, command = text.partition("=")
        try:
            words = shlex.split(command)
        except ValueError as why:
            parser.error(f"--engine {text}: {why}")
        if not (name.strip() and equals and words):
            parser.error(f"--engine {text}: expected NAME=COMMAND")
        if name.lower() in taken:
            parser.error(f"--engine {text}: there is one of the name {name} already")
        if "|" in name or not name.isprintable():
            parser.error(f"--engine {text}: a name cannot stand in a table with | or with what is not printed")
        if not shutil.which(words[0]):
            parser.error(f"--engine {text}: there is no program {words[0]}")
        taken.add(name.lower())
        engines.append((name, words))
    return engines


def parse(words=None):
    parser = argparse.ArgumentParser(prog="bench/peers/run", description="Runs tern beside PyTorch, OpenVINO, stable-diffusion.cpp and other engines. See bench/README.md.")
    parser.add_argument("--build", help=argparse.SUPPRESS)
    parser.add_argument("--work", help=argparse.SUPPRESS)
    parser.add_argument("--openvino-python", help=argparse.SUPPRESS)
    parser.add_argument("--sdcpp-python", help=argparse.SUPPRESS)
    parser.add_argument("--runs", type=int, help="timed runs of each engine (default 5, of savings 1)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", default=",".join(USUAL), help=f"some of {', '.join(PARTS)} (default {','.join(USUAL)})")
    parser.add_argument("--dtypes", default=",".join(DTYPES), help="some of " + ", ".join(DTYPES))
    parser.add_argument("--peers", default=",".join(PEERS), help="some of " + ", ".join(PEERS))
    parser.add_argument("--engine", action="append", default=[], metavar="NAME=COMMAND", help="one more engine; its protocol: bench/README.md")
    parser.add_argument("--limit", type=float, default=1800, help="seconds that an engine may take for one answer (default 1800)")
    parser.add_argument("--readme", action="store_true", help="put the table into README.md, too; wants all usual parts, dtypes and peers")
    parser.add_argument("--out", help="folder of the page (default docs/bench; of a run that leaves something out: the folder of the models)")
    args = parser.parse_args(words)
    args.only = some_of(parser, "--only", args.only, PARTS)
    args.dtypes = some_of(parser, "--dtypes", args.dtypes, DTYPES)
    args.peers = some_of(parser, "--peers", args.peers, PEERS)
    args.engine = other_engines(parser, args.engine)
    args.out = args.out and os.path.join(os.environ.get("TERN_CALLED_FROM", ""), args.out)
    if args.runs is None:
        args.runs = 1 if args.only == [SAVINGS] else 5
    if SAVINGS in args.only and (args.only != [SAVINGS] or "bf16" not in args.dtypes or args.engine):
        parser.error("--only savings: expected no other part, bf16 among the dtypes, and no other engine")
    alone = args.only in ALONE and "bf16" in args.dtypes and NEEDED[args.only[0]] <= set(args.peers)
    args.whole = alone or (set(USUAL) <= set(args.only) and set(args.dtypes) == set(DTYPES) and set(args.peers) == set(PEERS))
    if args.runs < 1 or args.threads < 1 or not 1 <= args.limit <= 86400:
        parser.error("--runs, --threads, --limit: expected numbers from 1, and at most 86400 seconds")
    if args.readme and (not args.whole or args.only in ALONE):
        parser.error("--readme: expected all usual parts, dtypes and peers: the table would lose the others' rows")
    return args


def needs(args):
    """pytorch, openvino: environments. sd15, sdxl: models; sd15-openvino, sdxl-openvino: models as OpenVINO's files."""
    models = [model for model, parts in (("sd15", (*USUAL, SAVINGS)), ("sdxl", (XL,))) if set(parts) & set(args.only)]
    wanted = set().union(*(NEEDED.get(part, PEERS) for part in args.only)) & set(args.peers)
    if "openvino" in wanted:  # models are exported with PyTorch
        wanted.add("pytorch")
    there = [peer for peer in PEERS if peer in wanted and peer != "tern"]
    return [*there, *models, *(f"{model}-openvino" for model in models if "openvino" in there)]


if __name__ == "__main__":
    print(" ".join(needs(parse())))
