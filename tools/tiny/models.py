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

from tools.tiny.heads import HeadSettings, make_head
from tools.tiny.language_model import LanguageModelSize, next_token_loss, qwen3
from tools.tiny.optimize import Schedule, fit
from tools.tiny.texts import Texts, TextSettings, batches, make_texts
from tools.tiny.tokenizer import SPECIAL_TOKENS, TURN_END, save_tokenizer

CONTEXT = 1024


@dataclass(frozen=True)
class LanguageModelSettings:
    """A Qwen3 and its training; a step takes `rows` rows of text."""

    size: LanguageModelSize
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
    peagle=HeadSettings("p-eagle", layers=2, depth=16, steps=1400, conversations=6000),
    eagle3=HeadSettings("eagle3", layers=1, depth=8, steps=600, conversations=6000),
)


def make_all(settings: Settings, out: Path, scratch: Path) -> None:
    """Makes the target and all drafters in `out`; those that are there already, made from the same, stay.

    `scratch` has what the training of heads makes on its way, and goes on from.
    """
    texts = make_texts(settings.texts)
    _log("texts", f"{texts.trained.numel()} tokens")
    texts_sha256 = hashlib.sha256(texts.trained.numpy().tobytes()).hexdigest()
    made_from: dict[str, object] = {"texts": asdict(settings.texts), "texts_sha256": texts_sha256}
    for name, model in (("target", settings.target), ("draft-model", settings.draft_model)):
        _fill(out / name, {**made_from, "model": asdict(model)}, partial(make_language_model, model, texts))

    target = out / "target"
    made_from = {"target_sha256": hashlib.sha256((target / "model.safetensors").read_bytes()).hexdigest()}
    for name, head in (("p-eagle", settings.peagle), ("eagle3", settings.eagle3)):
        _fill(out / name, {**made_from, "model": asdict(head)}, partial(make_head, head, target, scratch))


def make_language_model(settings: LanguageModelSettings, texts: Texts, folder: Path) -> dict[str, object]:
    """Trains a Qwen3 on the texts, and writes it with its tokenizer."""
    vocab_size = texts.tokenizer.get_vocab_size()
    model = qwen3(settings.size, vocab_size=vocab_size, context=CONTEXT, eos_token_id=SPECIAL_TOKENS.index(TURN_END))
    stream = batches(texts.trained, settings.rows)
    log = partial(_log, folder.name)
    fit(model, lambda: next_token_loss(model, next(stream)), settings.schedule, log)
    with torch.no_grad():
        loss = next_token_loss(model, texts.checked).item()
    model.bfloat16().save_pretrained(folder)
    save_tokenizer(texts.tokenizer, folder, CONTEXT)
    return {"loss": round(loss, 3)}


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
