"""The tiny models: a target that knows structured text, and a drafter of each method; from a seed, on a CPU.

A model whose `training.json` holds the same settings and texts is kept, so that a stopped run can be continued.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor
from transformers import Qwen3ForCausalLM

from tools.tiny.checkpoint import save_head, save_language_model
from tools.tiny.eagle3 import Eagle3Head
from tools.tiny.head import DraftHead, HeadConfig
from tools.tiny.language_model import LanguageModelSize, next_token_loss, qwen3
from tools.tiny.optimize import Schedule, fit
from tools.tiny.peagle import PEagleHead
from tools.tiny.positions import sample_positions
from tools.tiny.targets import observe
from tools.tiny.texts import Texts, TextSettings, batches, make_texts
from tools.tiny.tokenizer import MASK, SPECIAL_TOKENS, TURN_END, save_tokenizer

CONTEXT = 1024


@dataclass(frozen=True)
class LanguageModelSettings:
    """A Qwen3 and its training; a step takes `rows` rows of text."""

    size: LanguageModelSize
    rows: int
    schedule: Schedule


@dataclass(frozen=True)
class HeadSettings:
    """A head and its training; `depths` and `keep` are those of `sample_positions`."""

    layers: int
    depths: int
    keep: float
    rows: int
    schedule: Schedule


@dataclass(frozen=True)
class Settings:
    """Everything that the models are made from."""

    texts: TextSettings
    target: LanguageModelSettings
    draft_model: LanguageModelSettings
    peagle: HeadSettings
    eagle3: HeadSettings


TINY = Settings(
    texts=TextSettings(),
    target=LanguageModelSettings(LanguageModelSize(256, 512, 6, 4, 2), rows=4, schedule=Schedule(900, 4e-3)),
    draft_model=LanguageModelSettings(LanguageModelSize(128, 256, 2, 2, 1), rows=4, schedule=Schedule(400, 4e-3)),
    peagle=HeadSettings(layers=2, depths=10, keep=0.7, rows=4, schedule=Schedule(300, 3e-3)),
    eagle3=HeadSettings(layers=1, depths=8, keep=0.7, rows=4, schedule=Schedule(400, 3e-3)),
)


def make_all(settings: Settings, out: Path) -> None:
    """Makes the target and all drafters in `out`; those that are there already, made from the same, stay."""
    texts = make_texts(settings.texts)
    _log("texts", f"{texts.trained.numel()} tokens")
    texts_sha256 = hashlib.sha256(texts.trained.numpy().tobytes()).hexdigest()
    made_from: dict[str, object] = {"texts": asdict(settings.texts), "texts_sha256": texts_sha256}
    for name, model in (("target", settings.target), ("draft-model", settings.draft_model)):
        _fill(out / name, {**made_from, "model": asdict(model)}, partial(make_language_model, model, texts))

    target = Qwen3ForCausalLM.from_pretrained(out / "target", dtype=torch.float32)  # a folder  # nosec B615
    made_from["target_sha256"] = hashlib.sha256((out / "target" / "model.safetensors").read_bytes()).hexdigest()
    heads = (("p-eagle", PEagleHead, settings.peagle), ("eagle3", Eagle3Head, settings.eagle3))
    for name, head_class, head in heads:
        _fill(out / name, {**made_from, "model": asdict(head)}, partial(make_head, head_class, head, texts, target))


def make_language_model(settings: LanguageModelSettings, texts: Texts, folder: Path) -> dict[str, object]:
    """Trains a Qwen3 on the texts, and writes it with its tokenizer."""
    vocab_size = texts.tokenizer.get_vocab_size()
    model = qwen3(settings.size, vocab_size=vocab_size, context=CONTEXT, eos_token_id=SPECIAL_TOKENS.index(TURN_END))
    stream = batches(texts.trained, settings.rows)
    log = partial(_log, folder.name)
    fit(model, lambda: next_token_loss(model, next(stream)), settings.schedule, log)
    with torch.no_grad():
        loss = next_token_loss(model, texts.checked).item()
    save_language_model(model, folder)
    save_tokenizer(texts.tokenizer, folder, CONTEXT)
    return {"loss": round(loss, 3)}


def make_head(
    head_class: type[DraftHead], settings: HeadSettings, texts: Texts, target: Qwen3ForCausalLM, folder: Path
) -> dict[str, object]:
    """Trains a head for the target on the texts, and writes it."""
    embedding = target.get_parameter("model.embed_tokens.weight").data
    head = head_class(head_config(target, settings), embedding, embedding)
    stream = batches(texts.trained, settings.rows)
    row_tokens = texts.trained.shape[1]

    def loss() -> Tensor:
        positions = sample_positions(row_tokens, settings.depths, settings.keep)
        return head.loss(observe(target, next(stream), head.config.aux_layers), positions)[0]

    fit(head, loss, settings.schedule, partial(_log, folder.name))
    save_head(head, folder)
    with torch.no_grad():
        positions = sample_positions(row_tokens, settings.depths, keep=1.0)
        _, right = head.loss(observe(target, texts.checked, head.config.aux_layers), positions)
    accuracy = [right[:, positions.depth == depth].float().mean().item() for depth in range(settings.depths)]
    return {"accuracy_per_depth": [round(share, 3) for share in accuracy]}


def head_config(target: Qwen3ForCausalLM, settings: HeadSettings) -> HeadConfig:
    """A head as wide as the target, on its layers 2, the middle one and the last but one, as in the P-EAGLE paper."""
    config = target.config
    return HeadConfig(
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_hidden_layers=settings.layers,
        num_attention_heads=config.num_attention_heads,
        aux_layers=(2, config.num_hidden_layers // 2, config.num_hidden_layers - 1),
        max_position_embeddings=CONTEXT,
        mask_token_id=SPECIAL_TOKENS.index(MASK),
        depths=settings.depths,
    )


def _fill(folder: Path, made_from: dict[str, object], make: Callable[[Path], dict[str, object]]) -> None:
    """Fills the folder all at once; `make` writes the model and returns what training.json shall tell of it."""
    record = folder / "training.json"
    if record.exists() and json.loads(record.read_text())["made_from"] == json.loads(json.dumps(made_from)):
        _log(folder.name, "is there already")
        return
    torch.manual_seed(0)
    started = time.monotonic()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder.parent, prefix=".") as temporary:
        new = Path(temporary) / folder.name
        new.mkdir()
        result = make(new) | {"seconds": round(time.monotonic() - started)}
        (new / record.name).write_text(json.dumps({"result": result, "made_from": made_from}, indent=2) + "\n")
        if folder.exists():
            folder.rename(Path(temporary) / "old")
        new.rename(folder)
    _log(folder.name, f"done, {result}")


def _log(model: str, message: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {model}: {message}", flush=True)
