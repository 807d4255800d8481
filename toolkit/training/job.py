"""The training job as a file, `job.json`: all that a job needs to know, with nothing left to resolve.

`toolkit train` writes it; `python -m toolkit.training JOB_FOLDER` reads it, in a container or as a process of its own.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from toolkit import documents
from toolkit.files import for_owner, write_whole

FILE = "job.json"
IN_BLOCKS = ("dflash", "dspark")
"""Methods whose heads learn the blocks of tokens that they draft."""
BLOCKS_AT_ONCE = 128
"""Of such a head's blocks that go through it together."""
MARKOV_RANK = 256
"""Of a DSpark head's map from one token to the next; speculators' default."""
KEEP_OUTPUT = (*IN_BLOCKS, "mtp")
"""Methods whose embedding and output layer are the target's, as they are."""
IN_PARTS = ("p-eagle",)
"""Methods whose heads a sequence can go through in `partitions`."""
EAGLE_3_1 = ("fc_norm", "norm_output")
"""What makes an EAGLE-3 head an EAGLE-3.1 head: keys of its config.json, as vLLM and speculators read them."""
OF_SPECULATORS = "speculators_model_type"
"""A key of the config of a head as speculators writes it, such as those of Red Hat."""
UNCONVERTED = "has the form that speculators writes, and training continues heads in the engine's own"
CONVERT = "Convert it, and name the folder of the outcome: toolkit convert HEAD --out FOLDER"

EVALUATED_TOKENS = 16_384
EVALUATED_CONVERSATIONS = 32
"""Each evaluation has so many tokens and samples at least; the one of the card as many more as FINAL_TIMES."""
FINAL_TIMES = 8

LEARNED_BYTES = 16
"""Of a weight that is learned, with its gradient and what optimizers know of it (ZeRO, arXiv 1910.02054)."""

Method = Literal["p-eagle", "eagle3", "dflash", "dspark", "mtp"]
Dtype = Literal["auto", "float32", "bfloat16", "float16"]

_AS_SERVED = (
    *("quantization", "hf-overrides", "kv-cache-dtype", "enable-expert-parallel"),
    *("moe-backend", "attention-backend"),
)


class ComparedHead(BaseModel):
    """One of the heads of a comparison: in what it differs from the others."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    method: Method
    layers: int
    depth: int


class TrainingJob(BaseModel):
    """What to train, from what, and for how long.

    Models are folders or hub ids; `target_name` and `target_revision` are what the head's config.json says of its
    target. `data` are files, folders, or `hf://owner/name[@revision]`: the platform brought what lies in S3; `shares`
    has for each the share of all conversations, None where it is used whole, and is empty where all are.
    `responses` is `target`, `keep`, or the address of a server with the target. `dtype` is the target's while it
    answers and gives hidden states, `engine_args` are the recipe's, of which those count that bound memory or decide
    what the target computes (`as_served`). `norms` makes an EAGLE-3 head an EAGLE-3.1 head. `states` says what reads
    the hidden states; `states_gb` is the most that they take of the disk, None all that is free. Exactly one of
    `epochs` and `steps` is given. With `compare` it trains these heads one after the other, in equal parts of
    `max_seconds`: see `heads`.

    Folders: `checkpoints` must outlast an interruption, and so must `answers` (None: they are there, too); `work`
    (samples and hidden states) can be made anew; `head` is written whole at the end, with config.json, weights,
    README.md and report.json, or with a folder of these for each method that is compared. Paths are absolute, or
    relative to the job's folder.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    method: Method
    target: str
    target_name: str
    target_revision: str | None = None
    data: tuple[str, ...]
    shares: tuple[float | None, ...] = ()
    responses: str = "target"
    temperature: float = 0.0
    max_new_tokens: int = 1024
    held_out: float = 0.05
    layers: int = 4
    depth: int = 8
    num_speculative_tokens: int = 7
    norms: bool = False
    draft_vocab_size: int | None = None
    max_length: int = 4096
    partitions: int = 1
    epochs: int | None = None
    steps: int | None = None
    batch_tokens: int = 8192
    learning_rate: float = 1e-4
    warmup: float = 0.05
    seed: int = 0
    checkpoint_seconds: int = 600
    start_from: str | None = None
    dtype: Dtype = "auto"
    states: Literal["engine", "transformers"] = "transformers"
    states_gb: float | None = None
    strict: bool = False
    engine_args: dict[str, Any] = {}
    max_seconds: Annotated[int, Field(gt=0)] = 24 * 3600
    compare: tuple[ComparedHead, ...] = ()
    answers: str | None = None
    checkpoints: str = "checkpoints"
    work: str = "work"
    head: str = "head"

    @property
    def as_served(self) -> dict[str, Any]:
        """Flags that decide what the target computes, where the engine reads its states; transformers knows none."""
        return {flag: self.engine_args[flag] for flag in _AS_SERVED if flag in self.engine_args and self.by_engine}

    @property
    def continues(self) -> bool:
        """Whether the head drafts well already before it learns anything here."""
        return bool(self.start_from) or self.method == "mtp"

    @property
    def by_engine(self) -> bool:
        """Whether the engine reads the hidden states."""
        return self.states == "engine"

    @property
    def heads(self) -> tuple[TrainingJob, ...]:
        """A job for each head: this one, or one for each that is compared, on the same answers and hidden states."""
        return tuple(self._head_of(one) for one in self.compare) or (self,)

    @property
    def is_done(self) -> bool:
        """Whether the head is there; one that is compared is kept with checkpoints, which come back file by file."""
        return is_head(Path(self.head)) and (self.answers is None or _read(self._files) == _listed(Path(self.head)))

    def note_head(self) -> None:
        """Write which files the head has, after all of them, where it is one of several."""
        if self.answers is not None:
            write_whole(self._files, _listed(Path(self.head)).decode())

    @property
    def _files(self) -> Path:
        return Path(self.checkpoints) / "head.json"

    def _head_of(self, one: ComparedHead) -> TrainingJob:
        folder = f"{self.checkpoints}/{one.method}"
        own = {"compare": (), "answers": self.checkpoints, "checkpoints": folder, "head": f"{folder}/head"}
        seconds = max(1, self.max_seconds // len(self.compare))
        return self.model_copy(update={**one.model_dump(), **own, "max_seconds": seconds})

    def write(self, folder: Path) -> Path:
        """The job as `job.json` in that folder, which is created."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / FILE
        with open(path, "w", opener=for_owner) as stream:
            stream.write(self.model_dump_json(indent=2) + "\n")
        return path


def unnamed_layers(count: int) -> tuple[int, int, int]:
    """Which hidden states of a target with so many layers engines give to a head whose config names none."""
    return 2, count // 2, count - 3


def block_size(method: str, drafts: int) -> int:
    """Positions of a block: a DSpark head drafts at each, a DFlash head at all but the first, the last known token."""
    return drafts if method == "dspark" else drafts + 1


def is_divided(method: str, weights: int, memory: float, processes: int) -> bool:
    """Whether processes, with so many bytes each, divide a head of so many weights that are learned.

    They do where it would take more than half of one's memory. A head that drafts in blocks, and the target's own
    block, are whole in each: texts differ in how often the former's blocks and the latter's experts are gone through.
    """
    return processes > 1 and method not in KEEP_OUTPUT and weights * LEARNED_BYTES > memory / 2


def is_head(folder: Path) -> bool:
    """Whether the folder of a job's head has it: it is written whole."""
    return folder.is_dir() and any(folder.iterdir())


def _listed(head: Path) -> bytes:
    """The files of a head, with their sizes."""
    files = sorted(path for path in head.rglob("*") if path.is_file())
    return (json.dumps({str(path.relative_to(head)): path.stat().st_size for path in files}, indent=2) + "\n").encode()


def _read(path: Path) -> bytes:
    try:
        return documents.read_file(path)
    except (OSError, documents.Unfit):
        return b""


def read_job(folder: Path) -> TrainingJob:
    """The job of a folder, with all paths absolute. Raises documents.Unfit, and OSError without a job.json."""
    job = documents.parse(TrainingJob, documents.read_file(folder / FILE))
    places = {key: str((folder / getattr(job, key)).resolve()) for key in ("checkpoints", "work", "head")}
    return job.model_copy(update=places)
