"""The section `training` of a recipe: how `toolkit train` makes the head that `speculation.model` names.

Platforms declare what else their jobs take.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, StrictBool, StrictInt, StrictStr, StringConstraints, model_validator

from toolkit.recipe.section import ModelName, NonEmptyStr, PositiveInt, Section

# A file or folder beside the recipe, a data set of the hub, or a prefix in S3; other schemes are typing errors.
DataSource = Annotated[
    StrictStr,
    StringConstraints(pattern=r"^(hf://[\w.-]+/[\w.-]+(@[\w./-]+)?|s3://[^/]+/.+|[^:]+)$", min_length=1),
]

# The user's key for it is not in it: recipes are shown and shared.
Responses = Annotated[StrictStr, StringConstraints(pattern=r"^(target|keep|https?://[^\s@]+)$")]

TRAINED_METHODS = ("p-eagle", "eagle3", "dflash", "dspark", "mtp")

EPOCHS = 3
"""Without a word of the recipe."""

# EAGLE-3 heads have one layer, and learn from seven of their own steps (SpecForge's train_eagle3.py, --ttt-length).
# DFlash heads have five layers (arXiv 2602.06036), and so have DSpark heads (speculators' default). A target's own
# block is one layer, and learns from three of its steps (speculators' default).
_OF_METHODS: Mapping[str, Mapping[str, Any]] = {
    "eagle3": {"layers": 1, "depth": 7},
    "dflash": {"layers": 5},
    "dspark": {"layers": 5},
    "mtp": {"layers": 1, "depth": 3},
}

# `paper`: arXiv 2602.01469, appendix A: 64 sequences of up to 8,192 tokens a step, 20 to 60 epochs, warm-up 0.25 %; its
# sizes, 4 layers and depth 8, are P-EAGLE's own, and not those of other methods.
# `tiny`: what the tiny pair's heads are trained with. `quick`: a smaller head, half as long sequences, one epoch.
_PRESETS: Mapping[str, Mapping[str, Any]] = {
    "paper": {
        "max_length": 8192,
        "epochs": 20,
        "batch_tokens": 64 * 8192,
        "learning_rate": 1e-4,
        "warmup": 0.0025,
    },
    "quick": {"layers": 1, "max_length": 2048, "epochs": 1},
    "tiny": {
        "layers": 2,
        "depth": 16,
        "max_length": 640,
        "steps": 400,
        "batch_tokens": 1024,
        "learning_rate": 4e-3,
    },
}

LONGEST_HOURS = 672
"""Of a training job on SageMaker: 28 days."""


class SharedSource(Section):
    """Data of which as much is taken as makes that share of all conversations."""

    source: DataSource = Field(alias="from", description="where it lies, as in `data`")
    share: Annotated[float, Field(gt=0, lt=1)] = Field(description="of all conversations that are used")


class TrainingSection(Section):
    """Data, size of the head, how long it learns, and the machines that train it."""

    data: Annotated[list[DataSource | SharedSource], Field(min_length=1)] = Field(
        description="prompts or conversations: .jsonl files or folders of them (`./…`), a data set of the hub "
        "(`hf://owner/name`), or a prefix in S3, such as that of an endpoint's data capture (`s3://bucket/prefix/`); "
        "`{from: …, share: 0.3}` makes one source 30 % of all conversations"
    )
    head: ModelName | None = Field(
        None,
        description="folder or `s3://bucket/prefix/` where a new P-EAGLE head is put, for a recipe whose `speculation` "
        "does not use one yet; `toolkit train` then writes the head into `speculation`, and removes this key",
    )
    data_version: NonEmptyStr | None = Field(
        None,
        description="a name for the present content of data in S3 and on the hub; change it to train anew when they "
        "have changed",
    )
    responses: Responses = Field(
        "target",
        description="where the answers come from that the head learns. `target`: in the job, the target answers every "
        "prompt of the data anew; an address such as `https://host/v1`: an OpenAI-compatible server of the target "
        "answers them; `keep`: the data's own answers, if the target wrote them; of a captured request only what the "
        "endpoint answered to it",
    )
    strict: StrictBool = Field(
        False, description="true: a row of the data that cannot be used ends the job; false: it is skipped and reported"
    )
    temperature: Annotated[float, Field(ge=0, le=2)] = Field(
        0.0, description="temperature of the target's new answers; 0: always its most probable token"
    )
    max_new_tokens: PositiveInt = Field(1024, description="longest new answer of the target, in tokens")
    held_out: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.05, description="share of the conversations that is kept from training, to measure the head on"
    )
    preset: Literal["paper", "quick", "tiny"] | None = Field(
        None,
        description="values for keys that the recipe leaves out. `paper`: as P-EAGLE's authors trained, 20 epochs of "
        "half a million tokens a step, for several large GPUs; sizes are the method's own. `quick`: a first try, one "
        "layer, one epoch of sequences of 2,048 tokens. `tiny`: minutes on a CPU, for models of a few million "
        "parameters",
    )
    layers: PositiveInt = Field(
        4, description="decoder layers of the head; default: 4, for `eagle3` and `mtp` 1, for `dflash` and `dspark` 5"
    )
    depth: Annotated[StrictInt, Field(ge=1, le=64)] = Field(
        8,
        description="draft tokens that the head learns to predict; for P-EAGLE it must be more than "
        "speculation.num_speculative_tokens; default: 8, for `eagle3` 7, for `mtp` 3; not used by `dflash` and "
        "`dspark`, which learn whole blocks",
    )
    norms: StrictBool = Field(
        False,
        description="for `eagle3` only: train an EAGLE-3.1 head, which normalizes the target's hidden states, and its "
        "own between draft tokens (`fc_norm` and `norm_output` in its config.json)",
    )
    draft_vocab_size: PositiveInt | None = Field(
        None, description="number of tokens that the head can draft: the most frequent of the data; default: all"
    )
    max_length: Annotated[StrictInt, Field(ge=16)] = Field(
        4096,
        description="longest sequence in tokens, longer ones are cut; default: 4096, or the target's limit if lower",
    )
    partitions: PositiveInt = Field(
        1, description="pieces that each sequence is computed in, for sequences that do not fit into memory as a whole"
    )
    epochs: PositiveInt | None = Field(
        None, description="how often the head sees all data; default: 3, if there is no `steps`"
    )
    steps: PositiveInt | None = Field(None, description="optimizer steps, instead of `epochs`")
    batch_tokens: PositiveInt | None = Field(
        None,
        description="tokens of one optimizer step; default: 8,192 for each GPU of the job's instances, on this machine "
        "8,192",
    )
    learning_rate: Annotated[float, Field(gt=0, lt=1)] = Field(1e-4, description="highest learning rate")
    warmup: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.05, description="share of the steps, at the start, in which the learning rate rises; then it falls to 0"
    )
    seed: Annotated[StrictInt, Field(ge=0)] = Field(
        0, description="seed of the held-out split, the order of the data and the first weights"
    )
    start_from: ModelName | None = Field(
        None, description="trained head to continue from, of the same size: a folder, hub id or s3://bucket/prefix/"
    )
    states: Literal["engine", "transformers"] = Field(
        "transformers",
        description="what runs the target to get its hidden states: `transformers`, on one GPU; `engine`, the engine "
        "that serves it, on as many GPUs of the job's machine as it needs",
    )
    states_gb: Annotated[float, Field(gt=0)] | None = Field(
        None,
        description="disk space for hidden states, in GB; if they need more, they are computed in parts while the head "
        "trains, again in each epoch; default: what is free",
    )
    checkpoint_seconds: PositiveInt = Field(
        600,
        description="longest time between two checkpoints, in seconds; training goes on while one is written",
    )
    instance_type: NonEmptyStr | None = Field(
        None, description="machine of the job, such as ml.p5.48xlarge; default: the first of platform.instance_types"
    )
    max_hours: Annotated[float, Field(gt=0, le=LONGEST_HOURS)] = Field(
        24, description="the job is stopped after this time, which limits its cost"
    )

    def filled(self, method: str) -> Self:
        """With the values of its preset, else of the method, for keys that are not written; also for another method."""
        usual = {key: type(self).model_fields[key].default for values in _OF_METHODS.values() for key in values}
        own, preset = _OF_METHODS.get(method, {}), _PRESETS.get(self.preset or "", {})
        # The target's own block has the size that it has.
        values = {**usual, **preset, **own} if method == "mtp" else {**usual, **own, **preset}
        written = self.model_fields_set
        held = written | {"epochs", "steps"} if written & {"epochs", "steps"} else written
        filled = {key: value for key, value in values.items() if key not in held}
        made: Self = self.model_construct(_fields_set=set(written), **{**dict(self), **filled})  # type: ignore[assignment]
        return made

    @property
    def types(self) -> tuple[str, ...]:
        """Machines that the job may have, the preferred first; empty where it has those that serve."""
        return (self.instance_type,) if self.instance_type else ()

    @property
    def machine_count(self) -> int:
        """Machines that train together, of the type that is preferred."""
        return 1

    @property
    def types_key(self) -> str:
        """The key of a recipe that names them."""
        return "training.instance_type"

    @property
    def sources(self) -> list[str]:
        """Where the data lies."""
        return [item.source if isinstance(item, SharedSource) else item for item in self.data]

    @property
    def shares(self) -> tuple[float | None, ...]:
        """Of each source the share of all conversations, None where it is used whole; empty where all are."""
        found = tuple(item.share if isinstance(item, SharedSource) else None for item in self.data)
        return found if any(found) else ()

    @model_validator(mode="after")
    def _whole(self) -> TrainingSection:
        total = sum(share or 0.0 for share in self.shares)
        if self.shares and not (total < 1 if None in self.shares else math.isclose(total, 1, abs_tol=1e-3)):
            wanted = "less than 1, for what has no share is the rest" if None in self.shares else "1"
            raise ValueError(f"the shares in `data` are {total:g} together, and should be {wanted}")
        return self

    @model_validator(mode="after")
    def _one_length(self) -> TrainingSection:
        if self.epochs and self.steps:
            raise ValueError("`epochs` and `steps` both say how long to train: remove one")
        return self
