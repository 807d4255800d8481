"""What compiled code depends on, and the key of it: for Trainium, and what vLLM compiles when it first starts on GPUs.

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
    """Whether the recipe's engine gets code that was compiled before it starts."""
    return wants_compiled(recipe) and not recipe.platform_rules.facts.keeps_caches


def wants_compiled(recipe: Recipe) -> bool:
    """Whether the recipe's containers are to take what an earlier start has compiled."""
    made = recipe.engine_rules.artifacts
    return made is not None and made.wanted(recipe)


def compiling_at_start(recipe: Recipe) -> Recipe:
    """The recipe with containers that take nothing compiled; itself if they have to, or would not anyway."""
    made = recipe.engine_rules.artifacts
    return made.without(recipe) if made and compiles_ahead(recipe) else recipe


def require_compiles_ahead(recipe: Recipe) -> None:
    """Raise UsageError for a recipe whose containers compile by themselves."""
    made = recipe.engine_rules.artifacts
    if made is None:
        raise UsageError(f"{recipe.engine.name} has nothing to compile beforehand", hint="Deploy it as it is.")
    if not made.wanted(recipe):
        raise UsageError(f"{recipe.name} is compiled when its containers start", hint=made.how_to_want)


def parts(recipe: Recipe) -> dict[str, str]:
    """Everything that the recipe's compiled code depends on, for its first instance type. Reads models in folders.

    `recipe` is a completed one: without revisions, a moved branch of the hub is not noticed. Nor is a base image whose
    tag has moved; one that is named by digest cannot. Raises UsageError for a Dockerfile that cannot be read.
    """
    made = recipe.engine_rules.artifacts
    if made is None:
        return {}
    image, drafter = _image(recipe.container or ContainerSection()), recipe.drafter
    compiled = made.parts(recipe, image, _identity(recipe.target), _identity(drafter) if drafter else "")
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

    Only the key where its platform keeps them anyway. The list of parts, by which the container explains differences,
    is left out if it is longer than `longest`.
    """
    if not wants_compiled(recipe):
        return {}
    if not compiles_ahead(recipe):
        return {KEY: key(recipe)}
    named_parts = parts(recipe)
    text = json.dumps(named_parts, separators=(",", ":"))
    known = {PARTS: text} if len(text) <= longest else {}
    return {FOLDER: folder, KEY: digest(named_parts)[:_KEY_CHARACTERS], **known}


def expected_seconds(recipe: Recipe) -> int:
    """Expected seconds of compiling, estimated from the size of the weights; 0 if unknown."""
    made = recipe.engine_rules.artifacts
    return made.seconds(recipe) if made else 0


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
