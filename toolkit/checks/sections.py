"""Checks of single sections: settings of instance types, prompt sets, expectations, tags, keys that nobody reads.

And of the container: is there an image to run or to build on, and is the recipe free of secrets?
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from toolkit.catalog import lookup
from toolkit.checks.models import check_pair, check_quality, check_target
from toolkit.engines.arguments import builds
from toolkit.errors import UsageError
from toolkit.findings import Finding, Severity
from toolkit.images.reference import parse
from toolkit.recipe.content import fragment
from toolkit.recipe.facts import Lock
from toolkit.recipe.prompts import read_prompts
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.schema import ContainerSection
from toolkit.recipe.section import Section
from toolkit.secret_values import secret_keys

_K = "num_speculative_tokens"


def check_on_types(recipe: Recipe, models: Lock | None) -> Iterator[Finding]:
    """Findings on the recipe, and with an instance type's own flags or K too; memory's check looks at every type."""
    own = {name: list(_findings(recipe.on(name), models)) for name in recipe.platform.overrides}
    everywhere = list(_findings(recipe, models))
    if own and len(own) == len(recipe.platform.types):  # without settings of a type's own it runs nowhere
        everywhere = [finding for finding in everywhere if all(finding in found for found in own.values())]
    yield from everywhere
    for index, name in enumerate(recipe.platform.types):
        for finding in own.get(name, ()):
            if finding not in everywhere:
                path = _path(finding.path, recipe, name, f"platform.instance_types.{index}")
                yield replace(finding, message=f"on {name}: {finding.message}", path=path)


def _findings(recipe: Recipe, models: Lock | None) -> Iterator[Finding]:
    yield from check_container(recipe)
    yield from recipe.engine_rules.check(recipe, models)
    if models:
        yield from check_target(recipe, models.target)
        yield from check_pair(recipe, models)
        yield from check_quality(recipe)


def _path(path: str, recipe: Recipe, name: str, here: str) -> str:
    """The key in the instance type's own settings that causes the finding, or else the type itself."""
    own = recipe.platform.overrides[name]
    for flag in (flag.replace("_", "-") for flag in own.args):
        if path == f"engine.args.{flag}":
            return f"{here}.args.{flag}"
    return f"{here}.{_K}" if path == f"speculation.{_K}" and own.num_speculative_tokens else here


def check_workloads(recipe: Recipe) -> Iterator[Finding]:
    """Can the files behind `workloads` be read, and do they contain prompts?"""
    for name, path in recipe.workloads.items():
        try:
            if not read_prompts(path):
                hint = 'Write a prompt on each line: {"prompt": "Name three rivers."}.'
                yield Finding("workload.empty", f"{path} contains no prompts", f"workloads.{name}", hint=hint)
        except UsageError as error:
            yield Finding("workload.unreadable", error.message, f"workloads.{name}", hint=error.hint)


def check_scaling_target(recipe: Recipe, code: str) -> Iterator[Finding]:
    """Does autoscaling add instances before requests have to wait? `code` is the finding's."""
    scaling, most = recipe.scaling, recipe.engine.max_num_seqs
    wanted = scaling.requests_per_instance
    if wanted and wanted > most and scaling.max_instances > scaling.min_instances:
        message = f"autoscaling aims at {wanted} concurrent requests, but the engine processes {most}: the others wait"
        path, hint = "scaling.requests_per_instance", f"Set it below {most}, or remove it."
        yield Finding(code, message, path, hint=hint, severity="warning")


def check_expect(recipe: Recipe) -> Iterator[Finding]:
    """Can it be what the recipe expects of its measurement, and will it be measured at all?"""
    for workload, wanted in recipe.expect.items():
        path = f"expect.{workload}"
        if recipe.workloads and workload not in recipe.workloads:
            message = f"`workloads` has no {workload}: `toolkit prove` does not measure it"
            hint = f"Add its prompts to `workloads`, or expect something of: {', '.join(recipe.workloads)}."
            yield Finding("expect.not-measured", message, path, hint=hint, severity="warning")
        length, speculation = wanted.acceptance_length, recipe.speculation
        if length and speculation and length > (most := speculation.num_speculative_tokens + 1):
            message = f"an acceptance length of {length:g} is expected, and a target step yields at most {most} tokens"
            hint = f"K + 1 is the most: lower it to at most {most}, or raise `speculation.num_speculative_tokens`."
            yield Finding("expect.impossible", message, f"{path}.acceptance_length", hint=hint)


# botocore 1.44.5, service model of SageMaker: TagKey, TagValue, TagList. The toolkit adds four tags.
_KEY_CHARACTERS, _VALUE_CHARACTERS, _MOST = 128, 256, 50 - 4
_ALLOWED = re.compile(r"[\w\s.:/=+@-]*")
_RESERVED = ("aws:", "toolkit:")


def check_tags(recipe: Recipe) -> Iterator[Finding]:
    """Will AWS accept the recipe's tags? The local platform has the same limits."""
    if len(recipe.tags) > _MOST:
        message = f"{len(recipe.tags)} tags are too many: at most {_MOST} are allowed beside the toolkit's own"
        yield Finding("sagemaker.tags", message, "tags", hint="Remove some.")
    for key, value in recipe.tags.items():
        if problem := _problem(key, value):
            yield Finding("sagemaker.tags", problem, f"tags.{key}", hint="Change it, or remove the tag.")


def _problem(key: str, value: str) -> str | None:
    if reserved := next((prefix for prefix in _RESERVED if key.lower().startswith(prefix)), None):
        return f"keys that begin with `{reserved}` are reserved"
    if len(key) > _KEY_CHARACTERS or len(value) > _VALUE_CHARACTERS:
        return f"a key may have at most {_KEY_CHARACTERS} characters, a value {_VALUE_CHARACTERS}"
    if not (_ALLOWED.fullmatch(key) and _ALLOWED.fullmatch(value)):
        return "keys and values may contain only letters, digits, spaces and _ . : / = + - @"
    return None


# The classes of these have the keys that a platform or an engine reads.
_OF_PLATFORMS = ("platform", "scaling", "rollout", "network", "observability", "training")
_OF_ENGINES = ("engine", "speculation")


def check_no_effect(recipe: Recipe) -> Iterator[Finding]:
    """Findings on keys that only others read; one of a rehearsal of the recipe's platform does no harm."""
    places = (
        (recipe.platform_rules.sections, _OF_PLATFORMS, f"on platform `{recipe.platform.name}`"),
        (recipe.engine_rules.sections, _OF_ENGINES, f"with engine `{recipe.engine.name}`"),
    )
    for sections, names, where in places:
        for name in names:
            section: Section | None = getattr(recipe, name)
            read = sections.get(name, Section)
            keys = section.changed() if section else []
            for key in (key for key in keys if key not in read.model_fields):
                declared = next(kind for kind in type(section).__mro__ if key in kind.__annotations__)
                rehearsal = name == "platform" and issubclass(declared, read)
                # A head that is trained elsewhere may serve here.
                severity: Severity = "info" if rehearsal else "warning" if name == "training" else "error"
                message, path = f"`{key}` has no effect {where}", f"{name}.{key}"
                yield Finding("recipe.no-effect", message, path, hint="Remove it.", severity=severity)


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
