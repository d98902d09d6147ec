#!/usr/bin/env python3
"""tests/data/images: pictures in every format that tern reads, the pixels they hold, and Pillow's LANCZOS.

usage: tools/goldens_images.py [--into FOLDER]      (environment: tools/goldens-venv)
NAME.png, .jpg, .webp are read by tests/test_images.c and must give NAME.rgb (height x width x 3 bytes). PNG pixels follow
from the samples that this script packs itself; those of JPEG and WebP are Pillow's."""
import argparse
import struct
import zlib
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

W, H = 13, 9
GRAY, RGB, PALETTE, GRAY_ALPHA, RGBA = 0, 2, 3, 4, 6
CHANNELS = {GRAY: 1, RGB: 3, PALETTE: 1, GRAY_ALPHA: 2, RGBA: 4}
ADAM7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
TEXT = "a café, 一只猫 🐱\nNegative prompt: \"blurry\"\nSteps: 20, Sampler: Euler a, CFG scale: 7.5, Seed: 42, Size: 512x512"


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def pack_rows(samples, depth):
    """(h, w, channels) of integers below 2^depth -> filtered scanlines; the filter changes from row to row."""
    out, above = b"", None
    for y, row in enumerate(samples.reshape(samples.shape[0], -1)):
        if depth == 16:
            line = row.astype(">u2").tobytes()
        else:
            bits = "".join(format(int(v), f"0{depth}b") for v in row)
            bits += "0" * (-len(bits) % 8)
            line = bytes(int(bits[i:i + 8], 2) for i in range(0, len(bits), 8))
        if y % 2 and above is not None:  # filter 2: minus the row above
            out += b"\2" + bytes((a - b) & 255 for a, b in zip(line, above))
        else:
            out += b"\0" + line
        above = line
    return out


def png(path, samples, color, depth, interlaced=False, before=b"", after=b""):
    h, w = samples.shape[:2]
    header = struct.pack(">IIBBBBB", w, h, depth, color, 0, 0, int(interlaced))
    if interlaced:
        parts = [samples[y::dy, x::dx] for x, y, dx, dy in ADAM7]
        rows = b"".join(pack_rows(p, depth) for p in parts if p.shape[0] and p.shape[1])
    else:
        rows = pack_rows(samples, depth)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + before + chunk(b"IDAT", zlib.compress(rows, 9)) + after
                     + chunk(b"IEND", b""))


def over_white(rgb, alpha):
    rgb, alpha = rgb.astype(np.int64), alpha.astype(np.int64)[..., None]
    return ((rgb * alpha + 255 * (255 - alpha) + 127) // 255).astype(np.uint8)


def to_byte(samples, depth):
    """16 bits lose the lower eight, fewer than eight are spread over 0..255."""
    return samples >> 8 if depth == 16 else samples * 255 // ((1 << depth) - 1)


def png_cases(folder, rng):
    for color, depth, interlaced in [(c, d, i) for c, depths in ((GRAY, (1, 2, 4, 8, 16)), (RGB, (8, 16)), (GRAY_ALPHA, (8, 16)),
                                                                 (RGBA, (8, 16))) for d in depths for i in (False, True)]:
        samples = rng.integers(0, 1 << depth, (H, W, CHANNELS[color]))
        name = f"{ {GRAY: 'gray', RGB: 'rgb', GRAY_ALPHA: 'gray-alpha', RGBA: 'rgba'}[color] }{depth}{'-adam7' if interlaced else ''}"
        png(folder / f"{name}.png", samples, color, depth, interlaced)
        v = to_byte(samples, depth)
        rgb = np.repeat(v[..., :1], 3, axis=2) if color in (GRAY, GRAY_ALPHA) else v[..., :3]
        alpha = v[..., -1] if color in (GRAY_ALPHA, RGBA) else np.full((H, W), 255)
        (folder / f"{name}.rgb").write_bytes(over_white(rgb, alpha).tobytes())

    for depth in (1, 2, 4, 8):
        n = min(1 << depth, 100)
        palette, alphas = rng.integers(0, 256, (n, 3)), rng.integers(0, 256, (n + 1) // 2)
        samples = rng.integers(0, n, (H, W, 1))
        png(folder / f"palette{depth}.png", samples, PALETTE, depth, depth == 4,
            before=chunk(b"PLTE", bytes(palette.astype(np.uint8).ravel())) + chunk(b"tRNS", bytes(alphas.astype(np.uint8))))
        alpha = np.concatenate([alphas, np.full(n, 255)])[samples[..., 0]]
        (folder / f"palette{depth}.rgb").write_bytes(over_white(palette[samples[..., 0]], alpha).tobytes())

    samples = rng.integers(0, 4, (H, W, 1))  # one grey value is transparent
    png(folder / "gray2-key.png", samples, GRAY, 2, before=chunk(b"tRNS", struct.pack(">H", 1)))
    rgb = np.repeat(samples * 85, 3, axis=2)
    (folder / "gray2-key.rgb").write_bytes(np.where(samples == 1, 255, rgb).astype(np.uint8).tobytes())
    samples = rng.integers(0, 2, (H, W, 3)) * 200
    png(folder / "rgb8-key.png", samples, RGB, 8, before=chunk(b"tRNS", struct.pack(">HHH", 200, 0, 200)))
    key = (samples == (200, 0, 200)).all(axis=2)[..., None]
    (folder / "rgb8-key.rgb").write_bytes(np.where(key, 255, samples).astype(np.uint8).tobytes())


def png_texts(folder):
    samples = np.zeros((1, 1, 3), dtype=np.int64)
    utf8 = TEXT.encode()
    before = chunk(b"tEXt", b"latin\0caf\xe9 \xbd") + chunk(b"zTXt", b"packed\0\0" + zlib.compress(b"\xfcber " * 50))
    before += chunk(b"iTXt", b"unicode\0\1\0en\0\0" + zlib.compress(utf8)) + chunk(b"iTXt", b"broken\0\0\0\0\0\xff\xfe")
    png(folder / "texts.png", samples, RGB, 8, before=before, after=chunk(b"iTXt", b"parameters\0\0\0\0\0" + utf8))


def smooth(rng):
    """A picture that JPEG keeps well, not symmetric in any way."""
    y, x = np.mgrid[0:24, 0:40]
    planes = [127 + 90 * np.sin(x / 9 + y / 5), 4 * x + 3 * y, 200 - 5 * y + x]
    return Image.fromarray(np.clip(np.stack(planes, axis=2), 0, 255).astype(np.uint8))


def exif_bytes(orientation=None, text=None, order="big"):
    """The block as piexif, which AUTOMATIC1111 uses, writes it: big-endian, UserComment "UNICODE" and UTF-16-BE."""
    e = {"big": ">", "little": "<"}[order]
    entries = [] if orientation is None else [struct.pack(e + "HHIHH", 0x112, 3, 1, orientation, 0)]
    size = 8 + 2 + 12 * (len(entries) + (text is not None)) + 4
    if text is not None:
        entries.append(struct.pack(e + "HHII", 0x8769, 4, 1, size))
    block = {"big": b"MM\0*", "little": b"II*\0"}[order] + struct.pack(e + "IH", 8, len(entries)) + b"".join(entries) + bytes(4)
    if text is not None:
        comment = b"UNICODE\0" + text.encode("utf-16-be" if order == "big" else "utf-16-le")
        block += struct.pack(e + "HHHIII", 1, 0x9286, 7, len(comment), size + 18, 0) + comment
    return b"Exif\0\0" + block


def lossy_cases(folder, rng):
    picture = smooth(rng)

    def keep(name, source=picture, **options):
        source.save(folder / name, **options)
        read = ImageOps.exif_transpose(Image.open(folder / name)).convert("RGB")
        (folder / name).with_suffix(".rgb").write_bytes(read.tobytes())

    keep("jpeg-444.jpg", quality=92, subsampling=0, exif=exif_bytes(text=TEXT))
    keep("jpeg-420.jpg", quality=85, subsampling=2, comment="a comment")
    keep("jpeg-progressive.jpg", quality=85, progressive=True, exif=exif_bytes(text="little", order="little"))
    keep("jpeg-gray.jpg", picture.convert("L"), quality=90)
    inks = [*picture.split(), Image.fromarray(np.add.outer(np.arange(24) * 5, np.arange(40) * 3).astype(np.uint8))]
    keep("jpeg-cmyk.jpg", Image.merge("CMYK", inks), quality=95)
    for orientation in range(1, 9):
        keep(f"upright{orientation}.jpg", quality=90, subsampling=0, exif=exif_bytes(orientation=orientation))
    keep("webp-lossy.webp", quality=80, exif=exif_bytes(orientation=6, text=TEXT))
    keep("webp-lossless.webp", lossless=True)

    alpha = Image.fromarray(rng.integers(0, 256, (24, 40), dtype=np.uint8))
    with_alpha = picture.copy()
    with_alpha.putalpha(alpha)
    with_alpha.save(folder / "webp-alpha.webp", lossless=True, exact=True)
    (folder / "webp-alpha.rgb").write_bytes(over_white(np.asarray(picture), np.asarray(alpha)).tobytes())
    picture.save(folder / "webp-animated.webp", save_all=True, append_images=[picture.rotate(180)], lossless=True)


def resize_cases(folder, rng):
    samples = rng.integers(0, 2, (23, 37, 3)) * 255  # hard edges: overshoot and clipping
    samples[:, :18] = np.arange(23 * 18 * 3).reshape(23, 18, 3) % 256
    png(folder / "resize.png", samples, RGB, 8)
    source = Image.fromarray(samples.astype(np.uint8))
    for w, h in ((16, 16), (64, 7), (37, 50), (5, 23), (74, 46), (1, 1), (36, 24), (2, 40)):
        (folder / f"resize-{w}x{h}.rgb").write_bytes(source.resize((w, h), Image.Resampling.LANCZOS).tobytes())


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--into", type=Path, default=Path(__file__).resolve().parents[1] / "tests" / "data" / "images")
    folder = ap.parse_args().into
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    rng = np.random.default_rng(7)
    png_cases(folder, rng)
    png_texts(folder)
    lossy_cases(folder, rng)
    resize_cases(folder, rng)


if __name__ == "__main__":
    main()
