"""Texts that AUTOMATIC1111 writes into pictures, and odd ones, with what a reader of its rules makes of them. The reader here is written
from the rules, character by character, and knows nothing of tern's."""
import json
import random

from .common import write_json

TEXTS = [
    "a cat\nNegative prompt: a dog\nSteps: 20, Sampler: Euler a, CFG scale: 7, Seed: 1234, Size: 512x768, Model hash: 6ce0161689",
    "a cat\nSteps: 20, Sampler: DPM++ 2M Karras, CFG scale: 7.5, Seed: 4294967295, Size: 512x512, Clip skip: 2, ENSD: 31337, Version: v1.5.1",
    "a (cat:1.2), <lora:x:0.5>\nNegative prompt: \nSteps: 5, Sampler: DPM++ 2M, Schedule type: Karras, CFG scale: 7, Seed: 1, Size: 64x64",
    "Steps: 20, Sampler: Euler, Seed: 1",
    "Negative prompt: only this\nSteps: 20, Sampler: Euler, Seed: 1",
    "prompt alone",
    "",
    "   \n  \n",
    "Steps: 1, 2: 3",
    "stairs. Steps: one, two: three, Seeds: many, more: yes\nSteps: 20, Sampler: Euler, Seed: 1",
    "stairs. Steps: one, twos: three, Seeds: many",
    "first line\n  second line  \n\nfourth\nNegative prompt:no blank\nmore of it\n\n  and more\nSteps: 2, Sampler: LMS, Seed: 3",
    "a\r\nb\r\nNegative prompt: c\r\nSteps: 2, Sampler: LMS, Seed: 3\r\n",
    "a\nNegative prompt: b\nNegative prompt: c\nSteps: 2, Sampler: LMS, Seed: 3",
    "a, Negative prompt: b\nSteps: 2, Sampler: LMS, Seed: 3",
    'a\nSteps: 2, Model: "x, y: z", Seed: 3, Lora hashes: "a: 12, b: 34", Version: v1.9.4',
    'a\nSteps: 2, Model: "a \\"quoted\\" name, and \\\\", Seed: 3',
    'a\nSteps: 2, Model: "line\\nend \\u00e9", Seed: 3',
    'a\nSteps: 2, Model: "open, Seed: 3, Size: 8x8',
    'a\nSteps: 2, Model: "x" y, Seed: 3',
    'a\nSteps: 2, Model: "", Seed: 3, Name: "',
    'a\nSteps: 2, Model: "bad \\q escape", Seed: 3',
    'a\nSteps: 2, Hires prompt: "many, words, (x:1.2)", Hires upscale: 2, Hires steps: 10, Denoising strength: 0.7',
    "a\nSteps: 2,Seed:3,Size:   8x8,   Model  : x",
    "a\nSteps: 2, : 3, x: 4, xy: 5, -ab: 6, a/b-c d: 7, _: 8, __: 9",
    "a\nSteps: 2, Seed: 3, Steps: 4, Size: 1x2, Seed: 5",
    "a\nSteps:, Seed:, Size:",
    "a\nSteps: 2, ControlNet 0: \"Module: canny, Model: control [abc], Weight: 1\", Seed: 3",
    "ein Haus – schön, 猫\nNegative prompt: häßlich\nSteps: 2, Größe: 3, 名前: 猫, Seed: 4",
    "a\nSteps: 2, Seed: 3, Time: 10:30, URL: http://x/y, z",
    "a\nSteps: 2, (Seed: 3), [Size: 8x8], Model: {x: 1}",
    "a\nSteps: 2, Seed: 3, Size: 8x8\nTemplate: b",
    "a\nSteps: 2, Seed: 3, Size: 8x8\n\n\n",
    "\u3000wide blanks\u3000\nSteps: 2, Seed:\u00a03, Size: 8x8\u2003",
    "tab\there\nSteps: 2,\tSeed: 3, a\tSize: 8x8",
]

WORDS = ["a cat", "Steps: 3", "Negative prompt: b", "Negative prompt:", '"x, y"', '"', "\\", "\\\"", ",", ":", "\n", "  ", "Size: 8x8", "é", "_", "-",
         "/", "Seed: 1, ", "Model: ", "(a:1.2)", "1", "k1: v, k2: w, k3: z"]


def is_word(c):
    return c.isalnum() or c == "_"


def value_at(line, i):
    """The value that begins there, and where it ends."""
    if line[i:i + 1] == '"':
        j = i + 1
        while j < len(line) and line[j] != '"':
            j += 2 if line[j] == "\\" else 1
        if j > i + 1 and j < len(line) and line[j + 1:j + 2] in ("", ","):
            return line[i:j + 1], j + 1
    j = line.find(",", i)
    j = len(line) if j < 0 else j
    return line[i:j], j


def fields(line):
    found, i = [], 0
    while i < len(line):
        if not is_word(line[i]):
            i += 1
            continue
        j = i
        while j < len(line) and (is_word(line[j]) or line[j] in " -/"):
            j += 1
        if line[j:j + 1] != ":" or j - i < 2:
            i = j if j > i + 1 or line[j:j + 1] == ":" else i + 1
            continue
        k = j + 1
        while k < len(line) and line[k].isspace():
            k += 1
        value, end = value_at(line, k)
        found.append([line[i:j], value])
        i = end + 1
    return found


def unquote(value):
    if len(value) > 1 and value[0] == value[-1] == '"':
        try:
            return json.loads(value)
        except ValueError:
            pass
    return value


def read(text):
    lines = text.strip().split("\n")
    last = fields(lines[-1])
    if len(last) < 3:
        last = []
    else:
        lines.pop()
    prompts, at = {"prompt": "", "negative": None}, "prompt"
    for line in lines:
        line = line.strip()
        if line.startswith("Negative prompt:"):
            line, at = line[len("Negative prompt:"):].strip(), "negative"
            prompts[at] = prompts[at] or ""
        prompts[at] += ("\n" if prompts[at] else "") + line
    return {**prompts, "fields": [[k, unquote(v)] for k, v in last]}


def make(root):
    rng = random.Random(20)
    texts = TEXTS + ["".join(rng.choice(WORDS) for _ in range(rng.randrange(1, 24))) for _ in range(200)]
    write_json(root / "infotext" / "cases.json", [{"text": t, **read(t)} for t in texts])
