"""From a recipe to its training job: what is in job.json, and the key of it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Literal, cast

from toolkit.catalog.lookup import Instance
from toolkit.errors import UsageError
from toolkit.recipe.content import digest, manifest, manifest_digest
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.trained import makes_norms
from toolkit.recipe.training_schema import EPOCHS, TrainingSection
from toolkit.training.job import IN_BLOCKS, ComparedHead, Method, TrainingJob

GPU_TOKENS = 8192
"""Of a step, for each GPU, without a word of the recipe."""

_KEY_CHARACTERS = 10
# With the key and the number of an attempt, a name has at most 60 of the 63 characters that jobs may have.
_NAME_CHARACTERS = 44
_DTYPES = {"half": "float16", "float": "float32"}
# What says where a job works, and not what it makes.
_FOLDERS = {"checkpoints", "answers", "work", "head", "target", "data", "start_from"}
# What decides how a job ends, but not what it makes.
_LIMITS = {"max_seconds", "checkpoint_seconds", "engine_args", "states", "states_gb", "strict"}
# What earlier versions had no key for: without it, their heads are these.
_LATER = ("compare", "norms")


def training_job(recipe: Recipe) -> TrainingJob:
    """The recipe's job on this machine: models and data where the recipe has them. Raises UsageError without one."""
    training = section(recipe)
    assert recipe.speculation
    written = training.model_dump(include=set(TrainingJob.model_fields) & set(TrainingSection.model_fields) - {"head"})
    return TrainingJob(
        **{
            **written,
            "name": recipe.name,
            "method": recipe.method,
            "target": recipe.target.model,
            "target_name": recipe.target.name if recipe.target.folder else recipe.target.model,
            "target_revision": target_revision(recipe),
            "data": tuple(training.sources),
            "shares": training.shares,
            "batch_tokens": step_tokens(recipe, training),
            "epochs": training.epochs or (None if training.steps else EPOCHS),
            "num_speculative_tokens": recipe.speculation.num_speculative_tokens,
            "norms": makes_norms(recipe),
            "dtype": cast(Literal["auto"], job_dtype(recipe)),
            "engine_args": dict(recipe.engine.args),
            "max_seconds": round(training.max_hours * 3600),
            "depth": _depth(recipe, training, recipe.method),
            "compare": tuple(_compared(recipe, training, method) for method in recipe.compared),
        }
    )


def job_dtype(recipe: Recipe) -> str:
    """That of the target while it answers and gives hidden states; `auto` is its own."""
    dtype = str(recipe.engine.args.get("dtype", "auto"))
    return _DTYPES.get(dtype, dtype)


def _compared(recipe: Recipe, training: TrainingSection, method: str) -> ComparedHead:
    own = training.filled(method)
    return ComparedHead(method=cast(Method, method), layers=own.layers, depth=_depth(recipe, own, method))


def _depth(recipe: Recipe, training: TrainingSection, method: str) -> int:
    """A block is drafted whole, in the length that was learned."""
    assert recipe.speculation
    return recipe.speculation.num_speculative_tokens if method in IN_BLOCKS else training.depth


def machines(recipe: Recipe, training: TrainingSection) -> list[Instance]:
    """The instances that the job may have, as far as they are known and have accelerators."""
    if not recipe.platform_rules.facts.has_instance_types:
        return []
    found = map(recipe.platform_rules.instance, training.types or recipe.platform.types[:1])
    return [instance for instance in found if instance and instance.memory_per_accelerator_mib]


def step_tokens(recipe: Recipe, training: TrainingSection) -> int:
    """Tokens of one optimizer step: GPUs that share too few wait for the one with the longest sample.

    Where the recipe does not say, those of the machines that it prefers count, if their GPUs are known.
    """
    first = next(iter(training.types or recipe.platform.types), "")
    instance = recipe.platform_rules.instance(first) if recipe.platform_rules.facts.has_instance_types else None
    gpus = training.machine_count * instance.accelerator_count if instance else 1
    return training.batch_tokens or GPU_TOKENS * max(1, gpus)


def training_key(recipe: Recipe) -> str:
    """A short digest of all that decides the head: settings, and what the models and data on this machine hold.

    Data elsewhere counts by its address and `data_version`. Raises UnreadableModel, UsageError.
    """
    training, settings = section(recipe), training_settings(recipe)
    sources = [recipe.target.model, *training.sources, *([training.start_from] if training.start_from else [])]
    version = [training.data_version] if training.data_version else []
    return digest([settings, [*(_content(source) for source in sources), *version]])[:_KEY_CHARACTERS]


def training_settings(recipe: Recipe) -> dict[str, Any]:
    """What decides the head besides the content of models and data."""
    job = training_job(recipe)
    engine = {"engine": {"version": recipe.engine.version, **job.as_served}} if job.by_engine else {}
    unsaid = {key for key in _LATER if not getattr(job, key)}
    return {**job.model_dump(exclude=_FOLDERS | _LIMITS | unsaid), **engine}


def job_name(recipe: Recipe) -> str:
    """The name of the recipe's job: the same settings, target and data have the same name."""
    return f"{recipe.name[:_NAME_CHARACTERS].rstrip('-')}-{training_key(recipe)}"


def section(recipe: Recipe) -> TrainingSection:
    """The recipe's section `training`. Raises UsageError for a recipe without one."""
    if recipe.training is None:
        hint = "Add `training: {data: [./conversations.jsonl]}`; see docs/training.md."
        raise UsageError(f"{recipe.path} does not say how to train a head: it has no `training`", hint=hint)
    return recipe.training


def target_revision(recipe: Recipe) -> str | None:
    """The commit of a target on the hub; of a folder a digest of its files."""
    return folder_revision(recipe.target.folder) if recipe.target.folder else recipe.target.revision


def folder_revision(folder: Path) -> str:
    """A short digest of a model's files."""
    return manifest_digest(manifest(folder))[:_KEY_CHARACTERS]


def _content(source: str) -> str:
    path = Path(source)
    if not path.is_absolute():
        return source
    if path.is_dir():
        return manifest_digest(manifest(path))
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
