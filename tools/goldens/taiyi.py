"""tests/data/taiyi: models whose text towers have the forms of Taiyi's, as differences from models/. Taiyi-Stable-Diffusion-1B-Chinese: a BERT
with weights of torch.save and the tokenizer's files, in the place of models/sd2's. Taiyi-Stable-Diffusion-XL: CLIP's vocabulary with Chinese
characters as added tokens, here in models/sdxl. (Taiyi-Stable-Diffusion-1B-Chinese-EN has the form of Stable Diffusion 1.x throughout.)"""
import json
import shutil
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertModel, BertTokenizerFast, CLIPTokenizer

from .common import fresh, generator, write_json, write_tensors
from .models import randomise
from .pipelines import DEFAULTS, pipeline, run

LENGTH = 14
HAN = "一二三红蓝的船在海上日落小桥流水人家猫画山云雪夜"
VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *HAN, "，", "。", ",", "!", "1", "8", "##8", "##k", "a", "b", "c", "cat", "cafe", "##s", "##t",
         "van", "gogh", "style", "boat", "red", "##e", "##o"]
# As IDEA-CCNL/Taiyi-Stable-Diffusion-1B-Chinese-v0.1 has it, but for lengths and paths.
TOKENIZER = {"cls_token": "[CLS]", "do_basic_tokenize": True, "do_lower_case": True, "mask_token": "[MASK]", "model_max_length": LENGTH,
             "never_split": None, "pad_token": "[PAD]", "sep_token": "[SEP]", "strip_accents": None, "tokenize_chinese_chars": True,
             "tokenizer_class": "BertTokenizer", "unk_token": "[UNK]"}
TEXT = {"hidden_size": 32, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 4, "max_position_embeddings": 16,
        "vocab_size": len(VOCAB), "type_vocab_size": 2, "hidden_act": "gelu", "layer_norm_eps": 1e-12, "pad_token_id": 0}
ADDED = "红蓝船海上日落小桥水猫山夜"
SMALL = {"mode": "txt2img", "width": 24, "height": 32, "steps": 4}
CASES = {
    "txt2img.taiyi": {**SMALL, "model": "taiyi", "sampler": "pndm", "prompt": "小桥流水，VAN Gogh，CAFÉ 8K", "negative": "cats，雪"},
    "txt2img.taiyi-xl": {**SMALL, "model": "taiyi-xl", "sampler": "euler", "prompt": "a red 船 at sunset，海上日落，小桥流水", "negative": "黑猫 cat"},
}


def write_bert(folder):
    """The tower alone, as torch.save writes it, with the buffer that files of that time have."""
    net = randomise(BertModel(BertConfig(**TEXT)), 800).half()
    (folder / "text_encoder").mkdir(exist_ok=True)
    net.config.architectures = ["BertModel"]
    net.config.save_pretrained(folder / "text_encoder")
    state = {k: v.clone() for k, v in net.state_dict().items()}
    state["embeddings.position_ids"] = torch.arange(TEXT["max_position_embeddings"])[None]
    torch.save(state, folder / "text_encoder/pytorch_model.bin")
    (folder / "tokenizer").mkdir(exist_ok=True)
    (folder / "tokenizer/vocab.txt").write_text("\n".join(VOCAB) + "\n", "utf-8")
    (folder / "tokenizer/tokenizer_config.json").write_text(json.dumps(TOKENIZER, indent=1) + "\n", "utf-8")


def bert_pipeline(root, folder, work):
    shutil.copytree(root / "models/sd2", work / "taiyi")
    for part in ("text_encoder", "tokenizer"):
        shutil.rmtree(work / "taiyi" / part)
    state = torch.load(folder / "text_encoder/pytorch_model.bin", weights_only=True)
    net = BertModel(BertConfig.from_pretrained(folder / "text_encoder")).eval()
    missing = net.load_state_dict({k: v.float() for k, v in state.items() if "position_ids" not in k}, strict=False)
    assert not missing.unexpected_keys and all("ids" in k for k in missing.missing_keys), missing
    index = json.loads((work / "taiyi/model_index.json").read_text())
    index.update(text_encoder=["transformers", "BertModel"], tokenizer=["transformers", "BertTokenizer"])
    (work / "taiyi/model_index.json").write_text(json.dumps(index))
    return pipeline("txt2img", work / "taiyi", text_encoder=net, tokenizer=BertTokenizerFast.from_pretrained(folder / "tokenizer"))


def write_rows(root, folder):
    """What the added tokens of both towers are embedded as, and their ids behind CLIP's."""
    g, rows = generator(810), {}
    for part in ("text_encoder", "text_encoder_2"):
        config = json.loads((root / "models/sdxl" / part / "config.json").read_text())
        rows[part] = (0.7 * torch.randn(len(ADDED), config["hidden_size"], generator=g)).half()
        first = config["vocab_size"]
    write_tensors(folder / "added_embeddings.safetensors", rows)
    write_json(folder / "added_tokens.json", {ch: first + i for i, ch in enumerate(ADDED)})


def xl_pipeline(root, folder, work):
    target, rows = work / "taiyi-xl", load_file(folder / "added_embeddings.safetensors")
    shutil.copytree(root / "models/sdxl", target)
    for part, more in rows.items():
        config, file = target / part / "config.json", target / part / "model.safetensors"
        facts, state = json.loads(config.read_text()), load_file(file)
        name = next(k for k in state if k.endswith("token_embedding.weight"))
        state[name] = torch.cat([state[name], more])
        config.write_text(json.dumps({**facts, "vocab_size": len(state[name])}))
        save_file(state, file, {"format": "pt"})
    tokens = {}
    for part in ("tokenizer", "tokenizer_2"):
        shutil.copy(folder / "added_tokens.json", target / part)
        tokens[part] = CLIPTokenizer.from_pretrained(target / part)
        ids = tokens[part]("小桥 red").input_ids
        assert max(ids) >= len(tokens[part]) - len(ADDED), ids
    return pipeline("txt2img", target, **tokens)


def write_runs(folder, pipe):
    texts = [CASES["txt2img.taiyi"]["prompt"]]
    ids = pipe.tokenizer(texts, padding="max_length", max_length=LENGTH, truncation=True, return_tensors="pt").input_ids
    out = pipe.text_encoder(ids, output_hidden_states=True)
    write_tensors(folder / "text_encoder.full.safetensors", {
        "input_ids": ids, "expected.last_hidden_state": out.last_hidden_state, "expected.pooler_output": out.pooler_output,
        **{f"expected.hidden_states.{i}": h for i, h in enumerate(out.hidden_states)}})


def make(root):
    folder, latents, pictures, rows = fresh(root / "taiyi"), {}, {}, []
    write_bert(folder)
    write_rows(root, folder)
    with tempfile.TemporaryDirectory() as tmp:
        pipes = {"taiyi": bert_pipeline(root, folder, Path(tmp)), "taiyi-xl": xl_pipeline(root, folder, Path(tmp))}
    write_runs(folder, pipes["taiyi"])
    for name, facts in CASES.items():
        pipe, case = pipes[facts["model"]], {"name": name, **DEFAULTS, **facts}
        latents[name], pictures[name] = run(pipe, case, None, dict(pipe.scheduler.config))
        assert torch.isfinite(latents[name]).all() and pictures[name].float().std() > 10, name
        parts = [t for t in (pipe.tokenizer, getattr(pipe, "tokenizer_2", None)) if t]
        rows.append({**case, "ids": [t(case["prompt"], padding="max_length", truncation=True).input_ids for t in parts]})
    write_json(folder / "cases.json", rows)
    write_tensors(folder / "latents.safetensors", latents)
    write_tensors(folder / "pictures.safetensors", pictures)
