#!/usr/bin/env python3
"""Writes a model whose text encoder is large, from a small one: usage: large_encoder.py MODEL OUT [--hidden N] [--layers N]. All weights are
zeros that take no room on the disk (sparse files), in f16: for measuring time and memory, not pictures. By default 10 GB."""
import argparse, json, pathlib, shutil, struct


def header_of(path):
    with open(path, "rb") as f:
        (size,) = struct.unpack("<Q", f.read(8))
        header = json.loads(f.read(size))
    header.pop("__metadata__", None)
    return {name: t["shape"] for name, t in header.items()}


def write_sparse(path, shapes):
    header, at = {}, 0
    for name, shape in shapes.items():
        size = 2
        for n in shape:
            size *= n
        header[name] = {"dtype": "F16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        f.truncate(8 + len(text) + at)
    return at


def text_shapes(old, config, hidden, layers):
    """Those of the first layer in each; 40 and 96 of a small encoder become hidden and four times as many."""
    size = {config["hidden_size"]: hidden, config["intermediate_size"]: 4 * hidden}
    tables = ("token_embedding", "position_embedding")
    shapes = {}
    for name, shape in old.items():
        wide = [shape[0], hidden] if any(t in name for t in tables) else [size[n] for n in shape]
        for layer in range(layers) if ".layers.0." in name else [None]:
            shapes[name if layer is None else name.replace(".layers.0.", f".layers.{layer}.")] = wide
    return {n: s for n, s in shapes.items() if ".layers." not in n or int(n.split(".layers.")[1].split(".")[0]) < layers}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--hidden", type=int, default=4096)
    parser.add_argument("--layers", type=int, default=25)
    o = parser.parse_args()
    shutil.copytree(o.model, o.out, ignore=shutil.ignore_patterns("tokenizer"))
    path = o.out / "text_encoder/config.json"
    config = json.loads(path.read_text())
    weights = o.out / "text_encoder/model.safetensors"
    old = {n: s for n, s in header_of(weights).items() if "position_ids" not in n and (".layers." not in n or ".layers.0." in n)}
    shapes = text_shapes(old, config, o.hidden, o.layers)
    position = next(n for n in shapes if "position_embedding" in n)
    shapes[position] = [77, o.hidden]
    total = write_sparse(weights, shapes)
    heads = o.hidden // 64
    config.update(hidden_size=o.hidden, intermediate_size=4 * o.hidden, num_hidden_layers=o.layers, num_attention_heads=heads)
    config["max_position_embeddings"] = 77
    path.write_text(json.dumps(config))
    path = o.out / "unet/config.json"
    config = json.loads(path.read_text())
    wide = config["cross_attention_dim"]
    config["cross_attention_dim"] = o.hidden
    path.write_text(json.dumps(config))
    weights = o.out / "unet/diffusion_pytorch_model.safetensors"
    keys = ("attn2.to_k.weight", "attn2.to_v.weight")
    write_sparse(weights, {n: [s[0], o.hidden] if n.endswith(keys) and s[1] == wide else s for n, s in header_of(weights).items()})
    print(f"{o.out}: a text encoder of {total / 1e9:.2f} GB")


main()
