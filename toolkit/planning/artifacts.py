"""What compiled code for Trainium was compiled for, and the key that stands for all of it.

Both engines compile for exact shapes, and NxD Inference loads what it finds without a look at what it was made for. So
whatever may change the code is a part here, and each set of parts has a place of its own. What does no harm may be a
part as well: to compile once too often costs an hour, to serve other code than the recipe's costs right answers.
"""

from __future__ import annotations

import json
from math import ceil
from typing import Any

from toolkit.catalog import neuron
from toolkit.errors import UsageError
from toolkit.planning.names import ARTIFACTS_PREFIX
from toolkit.recipe.arguments import LONGEST_VALUE, engine_flags
from toolkit.recipe.content import digest, fragment, manifest, manifest_digest
from toolkit.recipe.resolve import Recipe
from toolkit.recipe.schema import ContainerSection
from toolkit.recipe.source import ModelSource

RECORD = "artifacts.json"
"""The container writes it last, beside what it compiled: {"key": …, "parts": …}."""

FOLDER, KEY, PARTS = "TOOLKIT_ARTIFACTS", "TOOLKIT_ARTIFACTS_KEY", "TOOLKIT_ARTIFACTS_PARTS"
"""What tells the container of artifacts: where they are, their key, their parts as JSON."""

_KEY_CHARACTERS = 12
_DIGEST_CHARACTERS = 12
# Flags that are parts themselves, and those that say where the models are or how they are called.
_NO_SETTINGS = (
    "max-model-len",
    "max-num-seqs",
    "model",
    "revision",
    "served-model-name",
    "tensor-parallel-size",
    "tokenizer-revision",
)
_NO_SPECULATIVE_SETTINGS = ("model", "num_speculative_tokens", "revision")


def compiles_ahead(recipe: Recipe) -> bool:
    """Whether the recipe's engine starts with what was compiled before, and only with that."""
    return recipe.on_neuron and recipe.engine.compile_ahead


def require_compiles_ahead(recipe: Recipe) -> None:
    """Raise UsageError for a recipe without errors whose engine compiles nothing ahead."""
    if not recipe.on_neuron:
        raise UsageError(f"{recipe.engine.name} compiles nothing ahead", hint="Only engines for Trainium do.")
    if not recipe.engine.compile_ahead:
        hint = "Remove `engine: {compile: at-start}`."
        raise UsageError(f"{recipe.name} compiles when its containers start", hint=hint)


def parts(recipe: Recipe) -> dict[str, str]:
    """All that the compiled code of the recipe depends on, on its first instance type. Reads models in folders.

    `recipe` is a completed one: without revisions, a moved branch of the hub is not noticed. Nor is a base image whose
    tag has moved; one that is named by digest cannot. Raises UsageError for a Dockerfile that cannot be read.
    """
    engine, speculation = recipe.engine, recipe.speculation
    found = {
        "engine": engine.name,
        "version": engine.version,
        "sdk": engine.generation.sdk if engine.generation else "unknown",
        "image": _image(recipe.container or ContainerSection()),
        "instance_family": neuron.family(recipe.platform.instance_types[0]),
        "logical_cores": next(
            (engine.env[name] for name in neuron.LOGICAL_CORES_VARIABLES if name in engine.env), "default"
        ),
        "tensor_parallel": str(engine.args.get("tensor-parallel-size", 1)),
        "max_num_seqs": str(engine.max_num_seqs),
        "max_model_len": str(engine.max_model_len or "the target's"),
        "method": recipe.method,
        "target": _identity(recipe.target),
    }
    if speculation:
        found["drafter"] = _identity(speculation.drafter)
        found["num_speculative_tokens"] = str(speculation.num_speculative_tokens)
    return {**found, "settings": digest(_settings(recipe))[:_DIGEST_CHARACTERS]}


def key(recipe: Recipe) -> str:
    """A short digest of the parts."""
    return digest(parts(recipe))[:_KEY_CHARACTERS]


def prefix(artifacts_key: str) -> str:
    """Where in the toolkit's bucket the artifacts of that key are."""
    return f"{ARTIFACTS_PREFIX}{artifacts_key}/"


def variables(recipe: Recipe, folder: str, longest: int = LONGEST_VALUE) -> dict[str, str]:
    """What tells the container that its artifacts are in `folder`; nothing for a recipe that compiles at start.

    The parts, from which the container says what differs, are left out where they are longer than `longest`.
    """
    if not compiles_ahead(recipe):
        return {}
    found = parts(recipe)
    text = json.dumps(found, separators=(",", ":"))
    known = {PARTS: text} if len(text) <= longest else {}
    return {FOLDER: folder, KEY: digest(found)[:_KEY_CHARACTERS], **known}


def expected_seconds(recipe: Recipe) -> int:
    """How long compiling is thought to take, by the size of the weights: an estimate; 0 where that is not known."""
    gigabytes = (recipe.weight_bytes or 0) / 1e9
    return 60 * ceil(neuron.facts().compile_minutes_per_gb * gigabytes)


def _settings(recipe: Recipe) -> dict[str, Any]:
    """Every other flag and variable of the engine."""
    flags = {flag: value for flag, value in engine_flags(recipe).items() if flag not in _NO_SETTINGS}
    if "speculative-config" in flags:
        config: dict[str, Any] = flags["speculative-config"]
        flags["speculative-config"] = {
            name: value for name, value in config.items() if name not in _NO_SPECULATIVE_SETTINGS
        }
    env = {name: value for name, value in recipe.engine.env.items() if name not in neuron.LOGICAL_CORES_VARIABLES}
    return {"flags": flags, "env": env}


def _image(section: ContainerSection) -> str:
    """The image by what may hold another compiler: the toolkit's own programs, and where it lies, change no code."""
    if not (section.base or section.wheels or section.dockerfile):
        return "catalogue"
    return digest([section.base, section.wheels, section.python, fragment(section)])[:_DIGEST_CHARACTERS]


def _identity(source: ModelSource) -> str:
    """A model with what tells its content: the hub's revision, a folder's digest. An S3 address has nothing."""
    if source.folder:
        return f"{source.name}-{manifest_digest(manifest(source.folder))[:_DIGEST_CHARACTERS]}"
    if source.kind != "hub":
        return source.written
    return f"{source.written}@{source.commit[:_DIGEST_CHARACTERS] if source.commit else source.revision or 'main'}"
