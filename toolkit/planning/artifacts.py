"""What compiled code depends on, and the key of it.

The engine names the parts that its compiled code depends on. Each set of parts has its own prefix in the bucket.
"""

from __future__ import annotations

import json

from toolkit.engines.arguments import LONGEST_VALUE
from toolkit.errors import UsageError
from toolkit.planning.names import ARTIFACTS_PREFIX
from toolkit.recipe.content import digest, fragment, manifest, manifest_digest
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.schema import ContainerSection
from toolkit.recipe.source import ModelSource

RECORD = "artifacts.json"
"""The container writes it last, beside what it compiled: {"key": …, "parts": …}."""

FOLDER, KEY, PARTS = "TOOLKIT_ARTIFACTS", "TOOLKIT_ARTIFACTS_KEY", "TOOLKIT_ARTIFACTS_PARTS"
"""Variables that tell the container where its compiled code is, the key, and the parts as JSON."""

_KEY_CHARACTERS = 12
_DIGEST_CHARACTERS = 12


def compiles_ahead(recipe: Recipe) -> bool:
    """Whether the recipe's engine needs code that was compiled before it starts."""
    return recipe.engine_rules.compilation is not None and recipe.engine.compile_ahead


def require_compiles_ahead(recipe: Recipe) -> None:
    """Raise UsageError for a recipe that does not need code compiled beforehand."""
    if recipe.engine_rules.compilation is None:
        hint = "Only engines for Trainium have."
        raise UsageError(f"{recipe.engine.name} has nothing to compile beforehand", hint=hint)
    if not recipe.engine.compile_ahead:
        hint = "Remove `engine: {compile: at-start}`."
        raise UsageError(f"{recipe.name} is compiled when its containers start", hint=hint)


def parts(recipe: Recipe) -> dict[str, str]:
    """Everything that the recipe's compiled code depends on, for its first instance type. Reads models in folders.

    `recipe` is a completed one: without revisions, a moved branch of the hub is not noticed. Nor is a base image whose
    tag has moved; one that is named by digest cannot. Raises UsageError for a Dockerfile that cannot be read.
    """
    compilation = recipe.engine_rules.compilation
    if compilation is None:
        return {}
    image, drafter = _image(recipe.container or ContainerSection()), recipe.drafter
    compiled = compilation.parts(recipe, image, _identity(recipe.target), _identity(drafter) if drafter else "")
    return {
        name: part if isinstance(part, str) else digest(part)[:_DIGEST_CHARACTERS] for name, part in compiled.items()
    }


def key(recipe: Recipe) -> str:
    """A short digest of the parts."""
    return digest(parts(recipe))[:_KEY_CHARACTERS]


def prefix(artifacts_key: str) -> str:
    """Where in the toolkit's bucket the artifacts of that key are."""
    return f"{ARTIFACTS_PREFIX}{artifacts_key}/"


def variables(recipe: Recipe, folder: str, longest: int = LONGEST_VALUE) -> dict[str, str]:
    """Environment variables that tell the container where its artifacts are. None for a recipe that compiles at start.

    The list of parts, by which the container explains differences, is left out if it is longer than `longest`.
    """
    if not compiles_ahead(recipe):
        return {}
    named_parts = parts(recipe)
    text = json.dumps(named_parts, separators=(",", ":"))
    known = {PARTS: text} if len(text) <= longest else {}
    return {FOLDER: folder, KEY: digest(named_parts)[:_KEY_CHARACTERS], **known}


def expected_seconds(recipe: Recipe) -> int:
    """Expected seconds of compiling, estimated from the size of the weights; 0 if unknown."""
    compilation = recipe.engine_rules.compilation
    return compilation.seconds(recipe) if compilation else 0


def _image(section: ContainerSection) -> str:
    """The parts of an image that may change the compiler: not the toolkit's own programs or the registry."""
    if not (section.base or section.wheels or section.dockerfile):
        return "catalogue"
    return digest([section.base, section.wheels, section.python, fragment(section)])[:_DIGEST_CHARACTERS]


def _identity(source: ModelSource) -> str:
    """A model with its revision on the hub or a folder's digest. An S3 address has neither."""
    if source.folder:
        return f"{source.name}-{manifest_digest(manifest(source.folder))[:_DIGEST_CHARACTERS]}"
    if source.kind != "hub":
        return source.model
    return f"{source.model}@{source.commit[:_DIGEST_CHARACTERS] if source.commit else source.revision or 'main'}"
