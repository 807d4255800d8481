"""Does a training job fit: the target its accelerators, where it answers and gives hidden states, and these its disk?

Of the data the beginnings alone are read.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

from toolkit.catalog.lookup import Instance
from toolkit.errors import ToolkitError, UnreadableModel
from toolkit.findings import Finding
from toolkit.recipe.facts import ModelFacts
from toolkit.recipe.model_files import read_folder
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.rows import ENDINGS
from toolkit.recipe.rules import Disk
from toolkit.recipe.training_schema import TrainingSection
from toolkit.sizing.fit import TENSOR_PARALLEL
from toolkit.sizing.shape import shape_of
from toolkit.sizing.weights import file_bytes, rank_bytes, serving_dtype
from toolkit.training.job import EVALUATED_CONVERSATIONS, EVALUATED_TOKENS, FINAL_TIMES
from toolkit.training.plan import job_dtype, machines, step_tokens
from toolkit.training.split import fewest, sizes, weights_room

_GIB = 1024**3
_ALSO_READ = "compressed-tensors"  # whose package comes with the engine
_OFFERED = 3


def check_target_memory(recipe: Recipe, training: TrainingSection, target: ModelFacts) -> Iterator[Finding]:
    """An error for weights alone that do not fit. The target is loaded, whoever gives its answers."""
    try:
        for instance in machines(recipe, training):
            if split_of(recipe, training, target, instance):
                continue
            split = _sizes(recipe, training, target, instance)[-1]
            needed, room = _rank_bytes(recipe, target, split), weights_room(instance.usable_bytes)
            over = f"each of the {split} accelerators that share them" if split > 1 else "one accelerator"
            message = (
                f"the target's weights take {needed / _GIB:.1f} GiB on {over} ({instance.name}), and there they can "
                f"have {room / _GIB:.1f}: the rest is for its work"
            )
            yield Finding("training.target-memory", message, training.types_key, hint=_hint(recipe, training, target))
    except (ToolkitError, ValueError):
        return  # another check says that the size, or the flag's value, is not known


def check_quantized(training: TrainingSection, target: ModelFacts) -> Iterator[Finding]:
    """A warning where a package that no image has to have decides whether the target can be read, and in which size."""
    stored = target.config.get("quantization_config") or target.text_config.get("quantization_config") or {}
    method = stored.get("quant_method")
    if training.states == "transformers" and method not in (None, _ALSO_READ):
        message = f"the target is stored quantized (`{method}`), which transformers reads with further packages only, "
        message += "and may unpack to bfloat16: then it takes more memory than its files"
        hint = "Write `states: engine`: then the recipe's engine reads it, as it serves it."
        yield Finding("training.quantized", message, "training.states", hint=hint, severity="warning")


def _hint(recipe: Recipe, training: TrainingSection, target: ModelFacts) -> str:
    """Types that hold the target when the engine divides it, the recipe's own first."""
    divided, own = training.edit(states="engine"), training.types or recipe.platform.types[:1]
    able = [
        (one.name not in own, one.accelerator_count * one.usable_bytes, one.name)
        for one in recipe.platform_rules.instances()
        if recipe.engine_rules.runs_on(one) and one.accelerator and split_of(recipe, divided, target, one)
    ]
    named = ", ".join(name for *_, name in sorted(able)[:_OFFERED]) or "none is known"
    begin = "Set" if training.states == "engine" else "Write `states: engine`, which divides the target, and set"
    return f"{begin} `{training.types_key}` to a type with enough memory: {named}."


def split_of(recipe: Recipe, training: TrainingSection, target: ModelFacts, instance: Instance) -> int | None:
    """Over how many accelerators of that instance the job divides the target; None if it does not fit.

    As `engines/vllm/job_arguments` does it there: over as few as hold it, and at least as many as serve it.
    """
    able = _sizes(recipe, training, target, instance)
    return fewest(able, lambda size: _rank_bytes(recipe, target, size), instance.usable_bytes)


def _sizes(recipe: Recipe, training: TrainingSection, target: ModelFacts, instance: Instance) -> list[int]:
    if training.states == "transformers":
        return [1]
    shape, least = shape_of(target), int(str(recipe.engine.args.get(TENSOR_PARALLEL, 1)))
    return sizes(shape.heads, shape.layers[0].kv_heads, least, instance.accelerator_count)


def _rank_bytes(recipe: Recipe, target: ModelFacts, split: int) -> int:
    return rank_bytes(target, split, serving_dtype(shape_of(target), str(recipe.engine.args.get("dtype", "auto"))))


TAPS = 3
"""Layers of the target that a head reads."""

_LOOKED_AT_BYTES = 1024**2
# What the job leaves of its disk for checkpoints and logs, and for the tokens of a file that is being written.
_SPARE_BYTES, _SPARE_TOKENS = 1024**3, 32_768
# UTF-8 of English text and JSON with usual vocabularies; other languages take fewer.
_BYTES_PER_TOKEN = 3.5


def check_states(recipe: Recipe, training: TrainingSection, target: ModelFacts) -> Iterator[Finding]:
    """An estimate of the hidden states against the disk of the job, where both are known.

    What does not fit is computed part by part, in each epoch again.
    """
    ask = recipe.platform_rules.facts.training_disk
    if ask is None:
        return
    disk = ask(recipe)
    tokens, room = local_tokens(training), states_room(recipe, disk, target)
    needed = tokens * state_bytes(recipe, target)
    has = f"{disk.name} has {room / 1e9:,.1f} GB for them"
    if training.states_gb and training.states_gb * 1e9 > room:
        message = f"`states_gb` is {training.states_gb:g}, and {has}, besides those that it may hold already"
        hint = f"{disk.more}, or lower it, or remove it: then the states take what is free."
        yield Finding("training.states", message, "training.states_gb", hint=hint, severity="warning")
    elif training.states_gb:
        has = f"`states_gb` is {training.states_gb:g}"
    parts = parts_of(recipe, tokens, training, target, room)
    if not parts:
        step, evaluated = _longest_step(recipe, training, target), _evaluated_tokens(training, tokens)
        message = f"a step reads hidden states of up to {step:,} tokens, and evaluations those of about {evaluated:,}, "
        message += f"more than fit: {has}"
        hint = f"{disk.more}, or set a lower `batch_tokens`, or a higher `states_gb` where there is one."
        # What this machine's disk has free may be little because the states of this very job are on it.
        certain = disk.empty or not parts_of(recipe, tokens, training, target, math.inf)
        yield Finding("training.states", message, disk.path, hint=hint, severity="error" if certain else "warning")
    elif parts > 1:
        message = (
            f"the hidden states of up to {tokens:,} tokens take up to {needed / 1e9:,.0f} GB (an estimate), and {has}: "
            f"they are computed in {parts} parts or more, in each epoch again"
        )
        hint = f"{disk.more} to compute them once, or set less `data`, or a smaller `max_length`."
        yield Finding("training.disk", message, disk.path, hint=hint, severity="info")


def states_room(recipe: Recipe, disk: Disk, target: ModelFacts) -> float:
    """What the disk has for hidden states, besides all else that the job writes to it."""
    taken = _SPARE_BYTES + _SPARE_TOKENS * state_bytes(recipe, target)
    return max(0, disk.free_bytes - taken - ((file_bytes(target) or 0) if disk.empty else 0))


def parts_of(recipe: Recipe, tokens: int, training: TrainingSection, target: ModelFacts, room: float) -> int:
    """In how many parts the job computes the states of so many tokens; 0 where not even those of a step fit."""
    bound = min(room, (training.states_gb or math.inf) * 1e9)
    fit = bound / state_bytes(recipe, target) - _evaluated_tokens(training, tokens)
    learned = tokens * (1 - training.held_out)
    if learned <= fit:
        return 1
    return 0 if fit < _longest_step(recipe, training, target) else math.ceil(learned / fit)


def _evaluated_tokens(training: TrainingSection, tokens: int) -> int:
    """Of so many tokens of data those whose states stay on the disk, as held-out samples are evaluated again."""
    rows = sum(rows for rows, _ in _local_rows(training))
    most = max(EVALUATED_TOKENS, EVALUATED_CONVERSATIONS * tokens / max(1, rows))
    return round(min(training.held_out * tokens, FINAL_TIMES * most))


def _longest_step(recipe: Recipe, training: TrainingSection, target: ModelFacts) -> int:
    """Tokens of a step at most: the last sample of one begins within its tokens, and ends behind them."""
    positions = target.text_config.get("max_position_embeddings") or training.max_length
    return step_tokens(recipe, training) + min(training.max_length, positions)


def _files(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        yield from (file for file in [path, *path.rglob("*")] if file.suffix.lower() in ENDINGS and file.is_file())


def _rows(path: Path) -> tuple[int, int]:
    """Rows of a file, by the lines of its beginning, and its bytes."""
    size = path.stat().st_size
    with path.open("rb") as stream:
        start = stream.read(_LOOKED_AT_BYTES)
    return max(1, round(size * start.count(b"\n") / max(1, len(start)))), size


def state_bytes(recipe: Recipe, target: ModelFacts) -> int:
    """Bytes of one token's hidden states on the disk: of the layers that the head reads, and the last one."""
    return (layers_read(recipe) + 1) * target.hidden_size * (4 if _is_float32(recipe, target) else 2)


def layers_read(recipe: Recipe) -> int:
    """A head that is continued reads as many layers of the target as its config names."""
    if recipe.method == "mtp":
        return 1
    assert recipe.training
    start = Path(recipe.training.start_from or "")
    if not start.is_absolute():
        return TAPS
    try:
        config = read_folder(start).config
    except UnreadableModel:
        return TAPS
    kinds = [config, config.get("eagle_config"), config.get("dflash_config")]
    keys = ("eagle_aux_hidden_state_layer_ids", "target_layer_ids")
    named = [kind[key] for kind in kinds if isinstance(kind, dict) for key in keys if isinstance(kind.get(key), list)]
    return len(set(map(str, named[0]))) if named else TAPS


def _is_float32(recipe: Recipe, target: ModelFacts) -> bool:
    """Whether the job stores states so: as the recipe says, else as the target's config, else as its weights are."""
    configs = (target.text_config, target.config)
    written = (config.get(key) for config in configs for key in ("dtype", "torch_dtype") if config.get(key))
    stored = (one.dtype for one in (target.tensors or {}).values() if one.dtype in ("F32", "BF16", "F16"))
    dtype = job_dtype(recipe)
    return (dtype if dtype != "auto" else next(chain(written, stored), "")) in ("float32", "F32")


def local_tokens(training: TrainingSection) -> int:
    """Tokens that the data on this machine give at most; 0 if all of it lies elsewhere."""
    return sum(most_tokens(rows, size, training) for rows, size in _local_rows(training))


def _local_rows(training: TrainingSection) -> Iterator[tuple[int, int]]:
    """Rows and bytes of each file of data on this machine."""
    return map(_rows, _files(Path(source) for source in training.sources if Path(source).is_absolute()))


def most_tokens(rows: int, size: int, training: TrainingSection) -> int:
    """Tokens that rows of data with so many bytes give at most, with the target's answers where it gives new ones."""
    answer = training.max_new_tokens if training.responses != "keep" else 0
    return rows * min(training.max_length, round(size / rows / _BYTES_PER_TOKEN) + answer)
