"""More documents from outside (see document_kinds.py): what training reads, and reads back."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import httpx
import torch
from safetensors.torch import save_file
from state_kinds import Good
from torch import Tensor

from tests.unit.training.heads import VOCAB, job_for
from toolkit.api.made_heads import REPORT, _told
from toolkit.api.served_card import with_served
from toolkit.api.training_run import TrainingRun
from toolkit.documents import parse
from toolkit.recipe.content import CARD
from toolkit.training import checkpoint, progress
from toolkit.training.__main__ import _read as read_job_of
from toolkit.training.chat import Chat, Turn, Unmaskable, load_chat, samples_of
from toolkit.training.checkpoint import Checkpoint, Writer
from toolkit.training.data import _read_prepared, _vocab_size
from toolkit.training.generators import FromServer, served_model
from toolkit.training.head import build_head, layers_read
from toolkit.training.job import FILE as JOB
from toolkit.training.launch import job_machines
from toolkit.training.responses import Answered, Question, Responses
from toolkit.training.samples import INDEX, Sample, Samples, SampleWriter, samples_file, states_file, write_tensors
from toolkit.training.template import Bounds, Renderer
from toolkit.training.vocabulary import FILE as VOCABULARY
from toolkit.training.vocabulary import draft_vocabulary, head_vocabulary, read_vocabulary

MODELS = Path(__file__).parents[2] / "recipes" / "tiny" / "models"
TALK = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}]
TOKENS, WIDTHS = 10, (6, 2)
Read = Callable[[bytes, Path], object]


@cache
def renderer() -> Renderer:
    """One for all documents."""
    return Renderer(Bounds(seconds=5.0))


def _tensors(content: bytes, kinds: Mapping[str, torch.dtype]) -> dict[str, Tensor]:
    """What a document says of tensors: lists of numbers, of these types where that can be."""
    value = json.loads(content)
    return {str(name): _tensor(part, kinds.get(name)) for name, part in value.items()}


def _tensor(value: Any, kind: torch.dtype | None = None) -> Tensor:
    for wanted in (kind, None):
        try:
            return torch.tensor(value, dtype=wanted)
        except (TypeError, ValueError, RuntimeError, OverflowError):
            continue
    return torch.tensor([0.5])


# Checkpoints.


@cache
def _trained() -> tuple[dict[str, Tensor], list[torch.optim.Optimizer]]:
    """Weights and optimizers after a step."""
    matrix, vector = torch.nn.Parameter(torch.ones(3, 2)), torch.nn.Parameter(torch.ones(2))
    optimizers: list[torch.optim.Optimizer] = [torch.optim.Muon([matrix]), torch.optim.AdamW([vector])]
    matrix.grad, vector.grad = torch.ones(3, 2), torch.ones(2)
    for optimizer in optimizers:
        optimizer.step()
    return {"matrix": matrix.detach(), "vector": vector.detach()}, optimizers


def _checkpoint(content: bytes, folder: Path) -> object:
    (folder / checkpoint.FILE).write_bytes(content)
    return checkpoint.load(folder, job_for(MODELS / "target"), *_trained())


def _best(content: bytes, folder: Path) -> object:
    (folder / checkpoint.BEST).write_bytes(content)
    return checkpoint.load_best(folder, _trained()[0])


def _good_checkpoint(folder: Path) -> bytes:
    weights, optimizers = _trained()
    states = [optimizer.state_dict() for optimizer in optimizers]
    kept = Checkpoint(5, weights, states, [(2, 1.5), (4, 2.5)], 12.5)
    with Writer(folder, job_for(MODELS / "target")) as writer:
        writer.save(kept, best=True)
    return (folder / checkpoint.FILE).read_bytes()


def _saved_again(file: str, read: Read) -> Read:
    """A checkpoint whose content, as a document, was changed before it was saved as it should be."""

    def write(content: bytes, folder: Path) -> object:
        try:
            value = json.loads(content)
        except (ValueError, RecursionError):
            return None
        try:
            torch.save(_from_document(value), folder / file)
        except RecursionError:
            return None
        return read((folder / file).read_bytes(), folder)

    return write


def _as_document(value: Any) -> Any:
    """With tensors as {"tensor": [...]}, and numbers for keys as texts."""
    if isinstance(value, Tensor):
        return {"tensor": value.tolist()}
    if isinstance(value, dict):
        return {str(key): _as_document(part) for key, part in value.items()}
    return [_as_document(part) for part in value] if isinstance(value, list | tuple) else value


def _from_document(value: Any) -> Any:
    if isinstance(value, dict):
        if value.keys() == {"tensor"}:
            return _tensor(value["tensor"])
        return {int(key) if key in ("0", "1") else key: _from_document(part) for key, part in value.items()}
    return [_from_document(part) for part in value] if isinstance(value, list) else value


# Samples.


def _write_samples(folder: Path) -> None:
    with SampleWriter(folder, "digest") as writer:
        for start in (0, 4):
            ids = torch.arange(start, start + 5, dtype=torch.int32)
            writer.add(Sample(ids, (ids > start + 2).to(torch.uint8)))
    states = {"hidden_states": torch.ones(TOKENS, WIDTHS[0]), "last_hidden_states": torch.ones(TOKENS, WIDTHS[1])}
    write_tensors(states_file(folder, 0), states, {})


def _use_samples(folder: Path) -> object:
    samples = Samples(folder)
    samples.require_vocabulary(VOCAB)
    samples.require_states(WIDTHS)
    return [(sample, samples.states(index)) for index, sample in enumerate(samples)]


def _in_samples(name: str) -> Read:
    def read(content: bytes, folder: Path) -> object:
        _write_samples(folder / "train")
        (folder / "train" / name).write_bytes(content)
        return _use_samples(folder / "train")

    return read


def _as_tensors(path: str, kinds: Mapping[str, torch.dtype], use: Callable[[Path], object]) -> Read:
    """A file whose tensors are those of the document."""

    def read(content: bytes, folder: Path) -> object:
        _write_samples(folder / "train")
        try:
            save_file(_tensors(content, kinds), folder / path)
        except (ValueError, RecursionError, AttributeError, RuntimeError):  # it is of no tensors
            return None
        return use(folder)

    return read


def _header(content: bytes) -> bytes:
    return content[8 : 8 + struct.unpack("<Q", content[:8])[0]]


def _with_header(good: bytes, read: Read) -> Read:
    """A safetensors file with the document for a header."""
    data = good[8 + len(_header(good)) :]
    return lambda content, folder: read(struct.pack("<Q", len(content)) + content + data, folder)


# Heads to start from, and targets.


def _start(name: str) -> Read:
    def read(content: bytes, folder: Path) -> object:
        shutil.copytree(MODELS / "p-eagle", folder / "head")
        (folder / "head" / name).write_bytes(content)
        job = job_for(MODELS / "target", start_from=str(folder / "head"), layers=_layers())
        return layers_read(job), head_vocabulary(folder / "head", 1440), build_head(job)

    return read


@cache
def _layers() -> int:
    return int(json.loads((MODELS / "p-eagle" / "config.json").read_text())["num_hidden_layers"])


def _target(name: str) -> Read:
    def read(content: bytes, folder: Path) -> object:
        for file in ("config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json"):
            shutil.copy(MODELS / "target" / file, folder)
        (folder / name).write_bytes(content)
        if name == "config.json":
            return _vocab_size(job_for(folder)), layers_read(job_for(folder))
        return _talked(load_chat(str(folder), renderer=renderer()))

    return read


def _talked(chat: Chat) -> object:
    try:
        return [samples_of(chat.turns(TALK), 100), chat.prompt(TALK[:1]), chat.text([5, 6]), chat.special_tokens]
    except Unmaskable as refused:
        return str(refused)


# What a job keeps.


def _responses(content: bytes, folder: Path) -> object:
    (folder / "responses.jsonl").write_bytes(content)
    return [samples_of(one.turns, 100) for one in Responses(folder / "responses.jsonl", "s")]


def _good_responses(folder: Path) -> bytes:
    found = Responses(folder / "responses.jsonl", "s")
    found.add(
        [Answered("d", "q", "a.jsonl:1", (Turn([1, 2], [3]), Turn([1, 2, 3, 4], [5]))), Answered("e", "r", "x", ())]
    )
    return (folder / "responses.jsonl").read_bytes()


def _job(content: bytes, folder: Path) -> object:
    (folder / JOB).write_bytes(content)
    return read_job_of(folder)


def _prepared(content: bytes, folder: Path) -> object:
    (folder / "data.json").write_bytes(content)
    return _read_prepared(folder, "m")


def _progress(content: bytes, folder: Path) -> object:
    (folder / progress.FILE).write_bytes(content)
    progress.forget_after(folder, "train", 3)
    told = map(progress.parse, (progress.PREFIX + line for line in (folder / progress.FILE).read_text().splitlines()))
    return [one.text() for one in told if one]


def _machines(content: bytes, folder: Path) -> object:
    (folder / "input" / "config").mkdir(parents=True)
    (folder / "input" / "config" / "resourceconfig.json").write_bytes(content)
    return job_machines(folder)


def _report_of_head(content: bytes, folder: Path) -> object:
    (folder / REPORT).write_bytes(content)
    run = TrainingRun(
        "r", "local", "j", "trained", "h", _told(folder / REPORT, "report", partial(parse, dict[str, Any]), {})
    )
    return repr(run), run._repr_html_(), run.to_dict()


def _card(content: bytes, folder: Path) -> object:
    (folder / CARD).write_bytes(content)
    return with_served(_told(folder / CARD, "model card", partial(bytes.decode, errors="replace"), ""), "## Served\n")


def _server(content: bytes) -> httpx.Client:
    transport = httpx.MockTransport(lambda _: httpx.Response(200, content=content))
    return httpx.Client(transport=transport, base_url="https://target.example/v1")


@cache
def _chat() -> Chat:
    return load_chat(str(MODELS / "target"), renderer=renderer())


def _answer(content: bytes, _folder: Path) -> object:
    ask = FromServer(_server(content), "m", _chat(), sleep=lambda _: None)
    return [samples_of([one.turn], 100) for one in ask([Question(tuple(TALK[:1]), [1, 2], 5)]) if one]


def training_kinds(folder: Path) -> dict[str, Good]:
    """By name."""
    folder.mkdir()
    _write_samples(folder / "train")
    good = _good_checkpoint(folder)
    content = _as_document(torch.load(folder / checkpoint.FILE, weights_only=True))
    samples, states = (file(folder / "train", 0).read_bytes() for file in (samples_file, states_file))
    in_samples, in_states = (_in_samples(f"{name}-00000.safetensors") for name in ("samples", "states"))
    head = (MODELS / "p-eagle" / "model.safetensors").read_bytes()
    maps = draft_vocabulary(torch.arange(20), 6, [0, 1])
    types = {"input_ids": torch.int32, "loss_mask": torch.uint8, "offsets": torch.int64}
    tensors = {"input_ids": list(range(5)) * 2, "loss_mask": [0, 0, 0, 1, 1] * 2, "offsets": [0, 5, 10]}
    return {
        "checkpoint": (good, _checkpoint, "checkpoint.pt", 2),
        "checkpoint's content": (_json(content), _saved_again(checkpoint.FILE, _checkpoint), "checkpoint.pt", 2),
        "best weights": ((folder / checkpoint.BEST).read_bytes(), _best, "best.pt", 2),
        "best weights' content": (
            _json(_as_document(_trained()[0])), _saved_again(checkpoint.BEST, _best), "best.pt", 2,
        ),
        "samples": (samples, in_samples, "samples-00000", 2),
        "samples' header": (_header(samples), _with_header(samples, in_samples), "samples-00000|index.json", 2),
        "samples' tensors": (
            _json(tensors),
            _as_tensors("train/samples-00000.safetensors", types, lambda folder: _use_samples(folder / "train")),
            "samples-00000|index.json|states-00000", 2,
        ),
        "samples' index": ((folder / "train" / INDEX).read_bytes(), _in_samples(INDEX), "index.json|samples-0", 2),
        "hidden states": (_header(states), _with_header(states, in_states), "states-00000", 2),
        "draft vocabulary": (
            _json({"d2t": maps.d2t.tolist(), "t2d": maps.t2d.tolist()}),
            _as_tensors(VOCABULARY, {"d2t": torch.int64, "t2d": torch.bool}, lambda where: read_vocabulary(where, 20)),
            VOCABULARY, 2,
        ),
        "maps of a head": (
            _json({"d2t": maps.d2t.tolist()}),
            _as_tensors("a.safetensors", {"d2t": torch.int64}, lambda folder: head_vocabulary(folder, 20)),
            "a.safetensors", 2,
        ),
        "config of a head to start from": (
            (MODELS / "p-eagle" / "config.json").read_bytes(), _start("config.json"), "start_from", 2,
        ),
        "weights of a head to start from": (
            _header(head), _with_header(head, _start("model.safetensors")), "model.safetensors|start_from", 2,
        ),
        "chat template": (
            _template().encode(), _target("chat_template.jinja"), "chat_template.jinja|tokenizer", 2,
        ),
        **{
            f"{name} in training": ((MODELS / "target" / name).read_bytes(), _target(name), "", 2)
            for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json")
        },
        "kept answers": (_good_responses(folder), _responses, "responses.jsonl", 2),
        "training job": (job_for(MODELS / "target").model_dump_json().encode(), _job, "job.json", 2),
        "prepared data": (
            _json({"made_from": "m", "train": _contents(), "held_out": _contents(), "skipped": "", "coverage": 0.5}),
            _prepared, "data.json", 2,
        ),
        "progress of a job": (
            b'{"stage": "train", "done": 3, "total": 9, "loss": 1.5, "accuracy": [0.5]}\n' * 2, _progress, "", 2,
        ),
        "machines of a job": (_json({"hosts": ["a", "b"], "current_host": "b"}), _machines, "resourceconfig.json", 3),
        "report of a head": (
            _json({"steps": 5, "acceptance_length": 2.5, "ended": "flat", "acceptance_per_depth": [0.5, 0.25]}),
            _report_of_head, "report.json", 1,
        ),
        "model card": (b"# Head\n\n## Served\n\n| a | b |\n\n## Made\n\nText.\n", _card, "README.md", 3),
        "target's answer": (
            _json({"choices": [{"message": {"content": "Hi"}, "finish_reason": "stop", "token_ids": [5, 2]}],
                   "prompt_token_ids": [1, 2]}),
            _answer, "target.example", 3,
        ),
        "list of models": (
            _json({"data": [{"id": "m"}]}), lambda content, _: served_model(_server(content)), "target.example", 3,
        ),
    }  # fmt: skip


def _contents() -> dict[str, Any]:
    return {"tokenizer": "t", "shards": 1, "samples": 2, "tokens": 10, "trained_tokens": 4}


def _template() -> str:
    config = json.loads((MODELS / "target" / "tokenizer_config.json").read_text())
    return str(config["chat_template"])


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()
