"""tests/data/prompts: prompts in AUTOMATIC1111's syntax, by the reference in a1111.py: how they are read, the states of the text
encoders, and latents of a loop that exchanges them by step. Textual inversions, in plain prompts by diffusers."""
import collections

import torch
from diffusers import StableDiffusionPipeline, StableDiffusionXLPipeline
from transformers import AutoTokenizer

from . import a1111
from .common import fresh, generator, write_json, write_tensors
from .models import load
from .schedulers import scheduler

TABLE = [
    "", " ", "normal text", "an (important) word", "(unbalanced", "[unbalanced", "unbalanced)", "unbalanced]", "((a", "((a)", "a))", "[[b",
    "\\(literal\\]", "\\(\\)\\[\\]\\\\", "a\\b", "end\\", "\\", "(unnecessary)(parens)", "(a)(b)[c][d]",
    "a (((house:1.3)) [on] a (hill:0.5), sun, (((sky))).", "(x:1.5)", "(x:-1.5)", "(x:+.5)", "(x: 1.5 )", "(x:1.)", "(x:0)", "(x:1e3)", "(x:nan)",
    "(x:inf)", "(x:1,5)", "(x:y)", "(x:1.2:1.3)", "(:1.3)", "(x:)", "x:1.3)", "x:1.3) (y", "[x:1.3)", "([x:1.3)", "(a [b) c]", "([a)]",
    "(a\nb:1.2)", "((a:1.1):1.1)", "(a:2) (b:2)", "(a:1)(b)", "((((((((((deep))))))))))", "[[[[[deep]]]]]", "[(mixed)]", "{curly} <angle>",
    "a BREAK b", "BREAK", "BREAK BREAK", "a  BREAK\nb", "aBREAKb", "break a", "a,BREAK,b", "_BREAK a", "éBREAK a", "(a BREAK b)",
    "(a BREAK b:1)", "(a BREAK b:-1)", "(a BREAK b:0)", "[a BREAK b]", "\\BREAK", "(BREAK:-1)", "a BREAK(b)", "a:BREAK:b", "東京 (塔:1.2)",
    "\u3000BREAK\u3000x", "(naïve café:1.1)", "🐈 (🐕:1.3)",
    "a AND b", "a AND b :0.5", "a :1.2 AND b : -0.5", "a:2", "a :2.", "a :.5", "a : 1e3", "a :1.2.3", "a AND AND b", "AND", "aANDb", "a ANDb",
    "a and b", "(a AND b:1.3)", "a\nAND\nb:3", "a :+1 AND b :-1 AND c", "a::2", "a : 2 :", "a AND b : 0.5 ", "_AND b", "a (b:1.2) AND c",
    "a [b:3]", "a [b: 3]", "a [b:3 ]", "a [[[b]]:2]", "[(a:2):3]", "a [b : c : 1] d", "a[b:[c:d:2]:1]e", "a [b:.5] c", "a [b:0.5] c",
    "a [b::0.5] c", "[:b:3]", "[b::3]", "[::3]", "[:3]", "a [{b|d{:.5] c", "((a][:b:c [d:3]", "[a|(b:1.1)]", "[fe|]male", "[fe|||]male", "[|]", "[|a]",
    "[a|b|c]", "[[a|b]|c]", "[a:b|c:3]", "[[a|b]:c:3]", "a|b", "(a|b)", "[a:b:c:3]", "[a:b:x]", "[a:b:]", "[a:b]", "[a]", "[a:1]", "[a:0]", "[a:-1]",
    "[a:b:-0.5]", "[a:b:1.0]", "[a:b:5.5]", "[a:b:1e0]", "[a:b:2e-1]", "[a:b:+2]", "[a:b:99]", "[a:b:.]", "[a:b:1e999]", "[a:b:1_0]",
    "[a:(b:1.2):3]", "[(a:b:c):d:3]", "[a(b:c:3]", "[a\\:b:c:3]", "\\[a:b:3]", "[a:b\\]:3]", "[a:b:3\\]", "photo: a [b:c:0.5], ratio 16:9",
    "smile :) [a:b:3] :( x", "(x:[a:b:0.5]:1.2)", "x [a:b:0.5] [c|d] [e::0.25]", "[a:b:0.5][a:b:0.5]", "[ a : b : 2 ]", "[a\n:b\n:\n3\n]", "[a:b:3",
    "a:b:3]", "(a [b:c:4]:1.3)", "[東:京:0.3]", "a\\", "a \\\nb [c:d:3]", "<lora:x:1> a", "[a:b:0.05]", "[a:b:0.95] [c:d:9]",
]
WORDS = "a photo of two boats under a blue sky, highly detailed, "

# name -> (model, prompt, how)
STATES = {
    "sd1.plain": ("sd1", "a cat in the snow", {}),
    "sd1.weights": ("sd1", "a ((red) house:1.4) in [the] (green:0.3) meadow, \\(day\\)", {}),
    "sd1.no-norm": ("sd1", "a (red house:1.8) in [the] meadow", {"emphasis": "No norm"}),
    "sd1.ignore": ("sd1", "a (red house:1.8) in [the] meadow", {"emphasis": "Ignore"}),
    "sd1.long": ("sd1", "(" + WORDS * 2 + ":1.2) and a dog", {}),
    "sd1.no-comma": ("sd1", "a house and a tree and a boat and a cat and a dog and a bird and a red meadow by day and by night", {}),
    "sd1.break": ("sd1", "a (cat:1.3) BREAK (snow:0.7)", {}),
    "sd1.clip-skip-2": ("sd1", "a (cat:1.3) in the snow", {"clip_skip": 2}),
    "sd1.clip-skip-3": ("sd1", "a cat in the snow", {"clip_skip": 3}),
    "sd1.schedule": ("sd1", "a (cat:1.5) [and a (dog:0.5)|, " + WORDS + "]", {}),
    "sd1.end-token": ("sd1", "a cat <|endoftext|> (snow:1.2)", {}),
    "sd2.weights": ("sd2", "a (red:1.4) house!! in [the] meadow!", {}),
    "sd2.long": ("sd2", "(" + WORDS + ":0.8) BREAK a dog", {"clip_skip": 2}),
    "sdxl.weights": ("sdxl", "a (red:1.4) house!! in [the] meadow!", {}),
    "sdxl.long": ("sdxl", WORDS + "(a dog:1.3)", {"clip_skip": 2}),
    "sdxl.no-norm": ("sdxl", "a (red house:1.8)", {"emphasis": "No norm"}),
}
# name -> facts of a run: those of pipelines.py, and the ones above
RUNS = {
    "schedule": {"prompt": "a [cat:dog:0.5] in [the snow::3] (by day:1.3)", "negative": "(text:1.2), [blurry:bad:2]", "sampler": "euler"},
    "alternate": {"prompt": "a [red|blue|green] house", "negative": "", "sampler": "dpm++2m"},
    "two-calls": {"prompt": "a [cat:dog:0.5] in [the:a:4] snow", "negative": "", "sampler": "heun"},
    "long-prompt": {"prompt": WORDS * 2, "negative": "(blurry:1.3)", "sampler": "ddim"},
    "long-negative": {"prompt": "a cat", "negative": WORDS * 2, "sampler": "ddim", "batch": 2},
    "and": {"prompt": "a cat :0.7 AND a [dog:bird:0.5] :0.4", "negative": "text", "sampler": "euler"},
    "and-long": {"prompt": "a cat AND " + WORDS * 2 + " :0.5 AND a boat :-0.2", "negative": WORDS * 3, "sampler": "euler", "cfg": 4.0},
    "weight-alone": {"prompt": "a cat :0.5", "negative": "", "sampler": "euler"},
    "cfg-off": {"prompt": "a [cat:dog:2] (in snow:1.3)", "negative": "text", "sampler": "euler", "cfg": 1.0},
    "xl-schedule": {"model": "sdxl", "prompt": "a [cat:dog:0.5] (in snow:1.3)", "negative": "blurry!", "sampler": "euler"},
    "xl-empty-negative": {"model": "sdxl", "prompt": WORDS, "negative": "", "sampler": "euler"},
    "inversion": {"prompt": "a (tiny-style:1.2) house by tiny-style", "negative": "bad-one", "sampler": "euler", "embeddings": True},
}
DEFAULTS = {"model": "sd1", "schedule": "default", "width": 48, "height": 40, "steps": 5, "cfg": 5.0, "seed": 42, "batch": 1}


def table():
    """The parse of each prompt; "invalid" where a weight is no number."""
    for text in TABLE:
        row = {"text": text, "compose": a1111.compose(text), "schedule": a1111.schedule(text, 10)}
        try:
            row["attention"] = a1111.attention(text)
        except ValueError:
            row["attention"] = "invalid"
        yield row


def invalid():
    for text in ("(x:1.2.3)", "(x:.)", "(x:..)", "(x:-.)", "(x:" + "9" * 400 + ")"):
        yield {"text": text, "attention": "invalid", "compose": a1111.compose(text), "schedule": a1111.schedule(text, 10)}


def layer(skip):
    """SD 1.x: so many layers from behind, then the norm."""
    def states(model, out):
        text = getattr(model, "text_model", model)
        return out.last_hidden_state if skip == 1 else text.final_layer_norm(out.hidden_states[-skip])
    return states


def tokenizer(folder):
    """OpenCLIP's has no token for padding, so that "!" is a word."""
    t = AutoTokenizer.from_pretrained(folder)
    if t.pad_token_id == t.eos_token_id:
        return t, None
    return AutoTokenizer.from_pretrained(folder, pad_token=t.eos_token), {"pad": t.pad_token_id}


def encoders(root, name, clip_skip=1, words=()):
    """words: [(name, (vectors, …))], vectors for each encoder."""
    folder = root / "models" / name
    xl = (folder / "text_encoder_2").exists()
    for n, (part, tok) in enumerate([("text_encoder", "tokenizer"), ("text_encoder_2", "tokenizer_2")][:1 + xl]):
        t, pads = tokenizer(folder / tok)
        fixed = xl or pads
        states = (lambda m, out: out.hidden_states[-2]) if xl else layer(1 if fixed else clip_skip)
        yield a1111.Encoder(load(folder, part), t, pads, states, [(w, v[n]) for w, v in words])


class Encoders(list):
    def encode(self, texts, emphasis="Original"):
        """([(tokens, D)], [pooled or None])"""
        parts = [e.encode(texts, emphasis) for e in self]
        return [torch.cat(s, -1) for s in zip(*(p[0] for p in parts))], parts[-1][1]

    def conditions(self, prompt, total, before=0, **how):
        """What holds at a call: call -> (states, pooled)."""
        parts = a1111.schedule(prompt, total, before)
        states, pooled = self.encode([t for _, t in parts], **how)
        return lambda call: (states[a1111.holds_at(parts, call)], pooled[a1111.holds_at(parts, call)])


def write_states(root, folder):
    tensors, rows = {}, []
    for name, (model, prompt, how) in STATES.items():
        parts = a1111.schedule(prompt, 4)
        both = Encoders(encoders(root, model, how.get("clip_skip", 1)))
        states, pooled = both.encode([t for _, t in parts], how.get("emphasis", "Original"))
        for end in (1, 2) if "schedule" in name else (4,):
            at = [e for e, _ in parts].index(end)
            tensors[f"{name}.{end}"] = states[at]
            if pooled[at] is not None:
                tensors[f"{name}.{end}.pooled"] = pooled[at]
        rows.append({"name": name, "model": model, "prompt": prompt, "clip_skip": how.get("clip_skip", 1),
                     "emphasis": how.get("emphasis", "Original")})
    write_json(folder / "states.json", rows)
    write_tensors(folder / "states.safetensors", tensors)


def repeat_last(states, tokens):
    return torch.cat([states, states[-1:].expand(tokens - len(states), -1)])


def fill(states, tokens, empty):
    return torch.cat([states, *[empty] * ((tokens - len(states)) // len(empty))])


def run(root, case, words):
    """Latents of the loop."""
    folder = root / "models" / case["model"]
    xl = case["model"] == "sdxl"
    pipe = (StableDiffusionXLPipeline if xl else StableDiffusionPipeline).from_pretrained(
        folder, dtype=torch.float32, **({} if xl else {"safety_checker": None}))
    text = Encoders(encoders(root, case["model"], words=words if case.get("embeddings") else ()))
    schedule = scheduler(case["sampler"], dict(pipe.scheduler.config), False)
    schedule.set_timesteps(case["steps"])
    total = case["steps"] * schedule.order
    joined = a1111.compose(case["prompt"])
    guided = case["cfg"] > 1 or len(joined) > 1 or joined[0][1] != 1
    positives = [text.conditions(t, total) for t, _ in joined]
    negative = text.conditions(case["negative"], total) if guided else None
    (empty,), _ = text.encode([""])
    generators = [generator(case["seed"] + i) for i in range(case["batch"])]
    shape = (1, 4, case["height"] // 8, case["width"] // 8)
    x = torch.cat([torch.randn(shape, generator=g) for g in generators]) * schedule.init_noise_sigma
    for call, t in enumerate(schedule.timesteps):
        rows = [p(call) for p in positives]
        most = max(len(s) for s, _ in rows)
        rows = [(repeat_last(s, most), p) for s, p in rows]
        if guided:
            s, p = negative(call)
            if xl and case["negative"] == "":
                s, p = torch.zeros_like(s), torch.zeros_like(p)
            rows.insert(0, (s, p))
        most = max(len(s) for s, _ in rows)
        outputs = []
        for s, p in rows:
            states = fill(s, most, empty)[None].expand(len(x), -1, -1)
            more = {"text_embeds": p[None].expand(len(x), -1), "time_ids": torch.tensor(
                [[case["height"], case["width"], 0, 0, case["height"], case["width"]]] * len(x)).float()} if xl else None
            outputs.append(pipe.unet(schedule.scale_model_input(x, t), t, states, added_cond_kwargs=more).sample)
        noise = outputs[0]
        if guided:
            noise = noise + sum(case["cfg"] * w * (o - outputs[0]) for o, (_, w) in zip(outputs[1:], joined))
        x = schedule.step(noise, t, x).prev_sample
    assert torch.isfinite(x).all()
    return x


def vectors(seed, *shape):
    return 0.7 * torch.randn(*shape, generator=generator(seed))


def write_inversions(folder):
    """Files in all the forms. Returns the words of sd1."""
    style, bad, xl = vectors(1, 3, 40), vectors(2, 40), (vectors(3, 2, 16), vectors(4, 2, 24))
    write_tensors(folder / "tiny-style.safetensors", {"emb_params": style})
    write_tensors(folder / "xl-style.safetensors", {"clip_l": xl[0], "clip_g": xl[1]})
    write_tensors(folder / "sd2-style.safetensors", {"emb_params": vectors(5, 2, 32)})
    torch.save({"string_to_token": {"*": torch.tensor(265)}, "string_to_param": {"*": style}, "name": "inside", "step": 500,
                "sd_checkpoint": "0123", "sd_checkpoint_name": "x"}, folder / "a1111.pt")
    torch.save({"<cat-toy>": bad}, folder / "learned.bin")
    torch.save({"string_to_param": collections.OrderedDict({"*": style}), "name": None}, folder / "unnamed.pt")
    return [("tiny-style", (style,)), ("bad-one", (bad[None],))], xl


# model -> (the files and their words, the runs); OpenCLIP's tokenizer pads with a token of its own
PLAIN = {
    "sd1": ((("learned.bin", None), ("a1111.pt", "my-style")), (
        ("plain.one", "a <cat-toy>, in the snow", "text"), ("plain.three", "a house by my-style!", "<cat-toy>"),
        ("plain.many", "my-style " * 14 + "a cat", ""))),
    "sd2": ((("sd2-style.safetensors", "sd2-style"),), (("plain.end-token", "a <|endoftext|> house by sd2-style", "text!"),)),
}


def plain_runs(root, folder):
    """diffusers' load_textual_inversion."""
    for model, (files, runs) in PLAIN.items():
        pipe = StableDiffusionPipeline.from_pretrained(root / "models" / model, dtype=torch.float32, safety_checker=None)
        pipe.set_progress_bar_config(disable=True)
        for file, word in files:
            pipe.load_textual_inversion(folder / file, token=word)
        pipe.scheduler = scheduler("ddim", dict(pipe.scheduler.config), False)
        for name, prompt, negative in runs:
            latents = pipe(prompt, negative_prompt=negative, width=48, height=40, num_inference_steps=3, guidance_scale=5.0,
                           generator=generator(42), output_type="latent").images
            yield {**DEFAULTS, "model": model, "name": name, "prompt": prompt, "negative": negative, "sampler": "ddim", "steps": 3}, latents


def make(root):
    folder = fresh(root / "prompts")
    write_json(folder / "table.json", [*table(), *invalid()])
    write_states(root, folder)
    words, _ = write_inversions(folder)
    latents, rows = {}, []
    for name, facts in RUNS.items():
        case = {"name": name, **DEFAULTS, **facts}
        latents[name] = run(root, case, words)
        rows.append(case)
    for case, x in plain_runs(root, folder):
        latents[case["name"]] = x
        rows.append(case)
    write_json(folder / "cases.json", rows)
    write_tensors(folder / "latents.safetensors", latents)
