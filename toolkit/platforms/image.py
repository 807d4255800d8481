"""The image that is built for a recipe: Dockerfile, files, and a tag that says its content.

Pure but for reading the container's own files, a Dockerfile fragment and the drafter's folder.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from toolkit.catalog import lookup
from toolkit.engines.arguments import IMAGE_DRAFTER_DIR
from toolkit.errors import StalePlanError, UsageError
from toolkit.home import containers_dir
from toolkit.images.reference import parse
from toolkit.images.spec import UNKNOWN_PYTHON, ContextFile, ImageSpec, sha256
from toolkit.planning.resources import Account
from toolkit.recipe.content import digest, fragment, model_manifest
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.schema import ContainerSection
from toolkit.version import __version__

ROOT = "/opt/toolkit"
"""Where an image has what the toolkit adds to its base."""

_NOT_IN_THE_IMAGE = ("Dockerfile", "README.md", "requirements.txt")
_TAG_CHARACTERS = 16
_INSTRUCTION = re.compile(r"^(ENV|ENTRYPOINT|USER) +(.+)$", re.M)


@dataclass(frozen=True)
class ImageStore:
    """Where images that are built are kept.

    `registry` is its address, empty for the account's own in ECR; `builder` what builds for it, None for what the
    recipe says. `has_accelerators`: AWS's and vLLM's images run there, so that one may be built on them.
    """

    registry: str = ""
    builder: str | None = None
    has_accelerators: bool = True


ECR = ImageStore()
ON_THIS_MACHINE = ImageStore("localhost", "podman or docker", has_accelerators=False)


def store_of(recipe: Recipe) -> ImageStore:
    """Where the recipe's platform keeps images that are built for it."""
    return ECR if recipe.platform_rules.facts.has_instance_types else ON_THIS_MACHINE


def address(image: lookup.Image, account: Account) -> str:
    """Where a catalogue's image is pulled from, by tag. Raises UsageError when AWS has none in the region."""
    tagged = f"{image.repository}:{image.tag}"
    if not image.registry:
        return f"{account.registry}/{tagged}"
    if not image.registry.isdigit():
        return f"{image.registry}/{tagged}"
    accounts = lookup.registries()
    if account.region not in accounts:
        raise UsageError(
            f"AWS has no known {image.engine} images in {account.region} (image_uri_config of its SDK)",
            hint=f"Set platform.region to one of: {', '.join(accounts)}.",
        )
    return f"{accounts[account.region]}.dkr.ecr.{account.region}.{account.domain}/{tagged}"


def by_digest(image: str, recipe: Recipe, account: Account) -> str:
    """The image as the lock pins it, else with what its tag means now; by tag where neither is known."""
    if digest := recipe.image_digests.get(image):
        return str(replace(parse(image), tag=None, digest=digest))
    return account.digests.get(image, image)


def no_base_for_cpus(recipe: Recipe) -> tuple[str, str]:
    """What is wrong with a container of this machine without a `base`, and the edit."""
    message = "`run: container` needs a base image for this machine, but those of the catalogue need a GPU"
    return message, f"Set one with {recipe.engine.name} for CPUs: `container: {{base: registry/repository:tag}}`."


def base_image(recipe: Recipe, account: Account, store: ImageStore = ECR) -> str:
    """What the image is built on, by digest where that is known. Raises UsageError where there is none."""
    return by_digest(base_address(recipe, account, store), recipe, account)


def base_address(recipe: Recipe, account: Account, store: ImageStore = ECR) -> str:
    """What the image is built on, as it is written: the recipe's, or the catalogue's for AWS's or the engine's own."""
    section, image = _section(recipe), recipe.image
    if section.base is None and not store.has_accelerators:
        message, hint = no_base_for_cpus(recipe)
        raise UsageError(message, hint=hint)
    if section.base is None and image is None:
        message = f"no base image with {recipe.engine.name} {recipe.engine.version} is known"
        raise UsageError(message, hint="Set `container.base` to one.")
    return section.base or (address(image, account) if image else "")


def render(
    recipe: Recipe,
    account: Account,
    store: ImageStore = ECR,
    *,
    program: str = "",
    more: Mapping[str, ContextFile] = MappingProxyType({}),
) -> ImageSpec:
    """All that makes the image. Raises UsageError for a fragment that cannot be read, UnreadableModel for a drafter.

    `program` is the folder in containers/, by default the engine's; `more` are further files by their paths.
    """
    from toolkit.images.wheels import with_hash

    program = program or recipe.engine.name
    section, base, python = _section(recipe), base_image(recipe, account, store), python_of(recipe)
    wheels = [with_hash(pin, recipe.wheel_digests) for pin in section.wheels]
    files = {
        **_programs(programs(recipe.engine.name, program), wheels, base),
        **_drafter_files(recipe, section),
        **more,
    }
    own = (containers_dir() / program / "Dockerfile").read_text(encoding="utf-8")
    instructions = _INSTRUCTION.findall(own)
    settings = dict(instructions)
    labels = _labels(recipe, base)
    lines = [f'LABEL {key}="{value}"\n' for key, value in labels.items()]
    added = fragment(section)
    text = own.replace("ARG BASE_IMAGE\n", f"ARG BASE_IMAGE={base}\n", 1) + "".join(lines) + added
    content = [
        text,
        wheels,
        python,
        {path: [f"{file.mode:o}", sha256(file)] for path, file in files.items()},
    ]
    return ImageSpec(
        base=base,
        dockerfile=text,
        files=files,
        env=dict(value.split("=", 1) for name, value in instructions if name == "ENV"),
        labels=labels,
        entrypoint=tuple(json.loads(settings["ENTRYPOINT"])),
        user=settings.get("USER"),
        wheels=tuple(wheels),
        python=python,
        needs_run=bool(added),
        tag=digest(content)[:_TAG_CHARACTERS],
    )


def python_of(recipe: Recipe) -> str:
    """Python of the base: what the recipe says, or the catalogue of its own image."""
    section = _section(recipe)
    known = None if section.base else recipe.image
    return section.python or (known.python if known else "") or UNKNOWN_PYTHON


def _labels(recipe: Recipe, base: str) -> dict[str, str]:
    """A recipe, its baseline and every K share one image, so no label tells them apart.

    `toolkit.recipe.container` is a digest of what the recipe's `container` changes in the image, and of nothing else.
    """
    section, digest_of_base = _section(recipe), parse(base).digest
    of_image = [section.base, section.python, section.wheels, section.bake_drafter]
    return {
        "com.amazonaws.sagemaker.capabilities.accept-bind-to-port": "true",
        "org.opencontainers.image.base.name": base,
        **({"org.opencontainers.image.base.digest": digest_of_base} if digest_of_base else {}),
        "org.opencontainers.image.version": __version__,
        "toolkit.engine.name": recipe.engine.name,
        "toolkit.engine.version": recipe.engine.version,
        "toolkit.recipe.container": digest(of_image)[:_TAG_CHARACTERS],
    }


def spec_of(request: Mapping[str, Any]) -> ImageSpec:
    """The image that the request of an `Image` describes. Raises StalePlanError when one of its files has changed."""
    for path, item in request["Files"].items():
        if "Source" in item and sha256(ContextFile(source=Path(item["Source"]))) != item["Sha256"]:
            raise StalePlanError(f"{item['Source']} has changed since this was planned as {path}", hint="Plan again.")
    files = {
        path: ContextFile(
            int(item["Mode"], 8),
            item["Content"].encode() if "Content" in item else None,
            Path(item["Source"]) if "Source" in item else None,
        )
        for path, item in request["Files"].items()
    }
    return ImageSpec(
        request["Base"],
        request["Dockerfile"],
        files,
        request["Env"],
        request["Labels"],
        tuple(request["Entrypoint"]),
        request["User"],
        tuple(request["Wheels"]),
        request["Python"],
        request["NeedsRun"],
        request["Tag"],
    )


def request_of(spec: ImageSpec) -> dict[str, Any]:
    """As JSON: a saved plan holds all that is not a folder of its own."""
    return {
        "Base": spec.base,
        "Dockerfile": spec.dockerfile,
        "Files": {path: _file_entry(file) for path, file in spec.files.items()},
        "Env": dict(spec.env),
        "Labels": dict(spec.labels),
        "Entrypoint": list(spec.entrypoint),
        "User": spec.user,
        "Wheels": list(spec.wheels),
        "Python": spec.python,
        "NeedsRun": spec.needs_run,
        "Tag": spec.tag,
    }


def _file_entry(file: ContextFile) -> dict[str, str]:
    if file.content is not None:
        return {"Mode": f"{file.mode:o}", "Content": file.content.decode()}
    return {"Mode": f"{file.mode:o}", "Source": str(file.source), "Sha256": sha256(file)}


def programs(engine: str, program: str = "") -> dict[str, ContextFile]:
    """What a container of an engine runs, by name: its own files and those that the engine's containers share."""
    folders = filter(None, (program or engine, lookup.shared_programs(engine)))
    paths = sorted(path for name in folders for path in (containers_dir() / name).iterdir() if path.is_file())
    return {
        path.name: ContextFile(0o755 if path.stat().st_mode & 0o100 else 0o644, path.read_bytes())
        for path in paths
        if path.name not in _NOT_IN_THE_IMAGE
    }


def _programs(files: dict[str, ContextFile], wheels: Sequence[str], base: str) -> dict[str, ContextFile]:
    """What every image of ours holds, licence and list of parts included."""
    from toolkit.images.inventory import bill_of_materials, wheels_of_pins

    files["LICENSE"] = ContextFile(content=(containers_dir().parent / "LICENSE").read_bytes())
    files["sbom.json"] = ContextFile(content=bill_of_materials(base, files, wheels_of_pins(wheels)))
    return {f"{ROOT}/{name}": file for name, file in files.items()}


def _drafter_files(recipe: Recipe, section: ContainerSection) -> dict[str, ContextFile]:
    if not section.bake_drafter or recipe.drafter is None:
        return {}
    folder = recipe.drafter.folder
    if folder is None:
        message = f"`bake_drafter` needs a drafter in a local folder, and {recipe.drafter} is not one"
        raise UsageError(message, hint="Download it, and set `speculation.model` to its folder.")
    files = model_manifest(folder, code=recipe.runs_model_code)
    return {f"{IMAGE_DRAFTER_DIR}/{file.path}": ContextFile(source=folder / file.path) for file in files}


def _section(recipe: Recipe) -> ContainerSection:
    return recipe.container or ContainerSection()
