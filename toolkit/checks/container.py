"""Is there an image to run or to build on, and is the recipe free of secrets?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from toolkit.catalog import lookup
from toolkit.engines.arguments import builds
from toolkit.errors import UsageError
from toolkit.findings import Finding
from toolkit.images.reference import parse
from toolkit.recipe.content import fragment
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.schema import ContainerSection
from toolkit.secret_values import secret_keys

_OFFERED = 3


def check_container(recipe: Recipe) -> Iterator[Finding]:
    """Findings on the image and on secrets. A JumpStart target has its own image."""
    yield from _check_built(recipe)
    yield from _image(recipe)
    yield from _secrets(recipe)
    yield from _of_base(recipe)


def _image(recipe: Recipe) -> Iterator[Finding]:
    """Check that there is an image to run, or to build on. Unknown versions are reported by the engine's checks."""
    engine = recipe.engine
    named = (recipe.container is not None and recipe.container.base) or recipe.target.kind == "jumpstart"
    if recipe.image or named or not recipe.engine_rules.knows(engine.version):
        return
    bases = [image.version for image in lookup.images("upstream", engine.name)]
    platform, facts = recipe.platform_rules, recipe.platform_rules.facts
    known = " or ".join(lookup.released(platform.name, engine.name)[:_OFFERED]) or "another platform"
    message = f"the catalogue has no image with {engine.name} {engine.version} for platform `{recipe.platform.name}`"
    other = ""
    if facts.builds is None:
        other = " Or name one yourself: `container: {base: registry/repository:tag}`."
    elif facts.starts_image_entrypoint and engine.version in bases:
        other = " Or write `container: custom` to build one from the engine's public image."
    newer = f" If there is one by now, write `unlisted: [{engine.version}]`." if facts.has_instance_types else ""
    yield Finding("container.image", message, "engine.version", hint=f"Use {known}.{newer}{other}")


def _check_built(recipe: Recipe) -> Iterator[Finding]:
    """What would make the build of a custom image fail."""
    section, drafter = recipe.container or ContainerSection(), recipe.drafter
    if not builds(recipe):
        return
    if recipe.target.kind == "jumpstart":
        message = f"{recipe.target} is a JumpStart model, which runs in JumpStart's own image"
        hint = "Remove `container`, or name the model's hub id as `target.model`."
        yield Finding("container.jumpstart", message, "container", hint=hint)
    if section.base and not _is_image_name(section.base):
        shown = f"…@{section.base.rpartition('@')[2]}" if "@" in section.base else section.base  # no password
        message = f"{shown} is not an image reference"
        hint = "Write registry/repository:tag or registry/repository@sha256:…, in lower case, without user or password."
        yield Finding("container.base", message, "container.base", hint=hint)
    image = None if section.base else recipe.image
    if image and image.python and section.python not in (None, image.python):
        message = f"the base image has Python {image.python}, and wheels for {section.python} do not work with it"
        hint = f"Remove `python`, or set it to {image.python}."
        yield Finding("container.python", message, "container.python", hint=hint)
    if section.dockerfile and not Path(section.dockerfile).is_file():
        message = f"file {section.dockerfile} does not exist"
        hint = "Correct the path; it is relative to the recipe's folder."
        yield Finding("container.dockerfile", message, "container.dockerfile", hint=hint)
    if section.dockerfile and section.builder == "append":
        message = "builder `append` cannot run a Dockerfile"
        hint = "Remove `builder`, or set it to docker, buildah or codebuild."
        yield Finding("container.builder", message, "container.builder", hint=hint)
    if section.bake_drafter and drafter and drafter.folder is None:
        message = f"`bake_drafter` needs a drafter in a local folder, and {drafter} is not one"
        hint = "Download it, and set `speculation.model` to its folder."
        yield Finding("container.bake", message, "container.bake_drafter", hint=hint)
    if section.bake_drafter and recipe.speculation and drafter is None:
        message = "`bake_drafter` is set, but the recipe names no drafter"
        yield Finding("container.bake", message, "container.bake_drafter", hint="Remove `bake_drafter`.")


def _of_base(recipe: Recipe) -> Iterator[Finding]:
    """What a build found out about this base and these packages, if it is known which base that is."""
    section, image = recipe.container or ContainerSection(), recipe.image
    digest = _digest_of_base(recipe, section.base or (f"{image.repository}:{image.tag}" if image else ""))
    if not builds(recipe) or not digest:
        return
    from toolkit.images.preflight import LENT, Addition, known_findings  # what reads images
    from toolkit.images.spec import UNKNOWN_PYTHON

    python = section.python or (image.python if image and not section.base else "") or UNKNOWN_PYTHON
    with suppress(UsageError):  # a fragment that cannot be read, which its own check says
        text = f"COPY rootfs/ /\n{fragment(section)}"
        put_together = "append" if recipe.platform_rules.facts.has_instance_types else LENT
        builder = section.builder or ("docker" if section.dockerfile else put_together)
        yield from known_findings(digest, Addition(tuple(section.wheels), python, builder, text, section.bake_drafter))


def _digest_of_base(recipe: Recipe, base: str) -> str:
    """The base's digest, as it is written or as the lock pins it; empty where it is not known."""
    with suppress(UsageError):
        if base and (written := parse(base).digest):
            return written
    locked = (digest for name, digest in recipe.image_digests.items() if name == base or name.endswith(f"/{base}"))
    return next(locked, "") if base else ""


def _is_image_name(text: str) -> bool:
    try:
        parse(text)
    except UsageError:
        return False
    return True


def _secrets(recipe: Recipe) -> Iterator[Finding]:
    """Secrets would be visible to everybody who can describe the Model, pull the image or read the recipe."""
    sections: dict[str, Mapping[str, Any]] = {
        "": {"description": recipe.description},
        "engine.env.": recipe.engine.env,
        "engine.args.": recipe.engine.args,
        "tags.": recipe.tags,
        "container.dockerfile, ": _lines(recipe.container),
    }
    for section, values in sections.items():
        for key in (found for name, value in values.items() for found in secret_keys(name, value)):
            message = f"`{key}` looks like a secret: whoever can read the recipe or describe the Model would see it"
            hint = f"Remove it. For a gated model {recipe.platform_rules.facts.gated_models}."
            yield Finding("container.secret", message, f"{section}{key}", hint=hint)


def _lines(section: ContainerSection | None) -> dict[str, str]:
    """The recipe's own instructions by `line N`; nothing of a file that cannot be read, which its own check says."""
    with suppress(UsageError):
        lines = fragment(section).splitlines() if section else []
        return {f"line {number}": line for number, line in enumerate(lines, 1)}
    return {}
