"""images.json: AWS's images for SageMaker and for Neuron, from its repositories of images, and those kept by hand."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from toolkit.catalog import published
from toolkit.catalog.lookup import version_key
from tools.catalogue import neuron
from tools.catalogue.documents import Documents, as_text, kept

_REPOSITORY = "github aws/deep-learning-containers"
_ROOT = "deep-learning-containers"
_DATA = "docs/src/data"
_CHANGELOG = "docs/vllm/changelog/index.md"
# A release in the changelog of the Amazon Linux images.
_RELEASE = re.compile(
    r"^## (?:ARM64 CPU )?v[\d.]+\s*[:—] (?P<date>\S+)$.*?`(?P<tag>server(?:-arm64)?-sagemaker-\S+)`"
    r".*?\(`(?P<version>[^`+]+)\+\S+`\).*?Bundled versions:\*\* (?:CUDA (?P<cuda>\S+) · )?Python (?P<python>\S+)",
    re.MULTILINE | re.DOTALL,
)
_MOVING_TAG = re.compile(r"^server-\S+-v\d+$")
# Engines by the folder of the image's data; those that the toolkit cannot start are listed under names of their own.
_ENGINES = {"vllm": "vllm", "djl-inference": "lmi", "huggingface-vllm": "huggingface-vllm"}


def generate(documents: Documents) -> str:
    """The text of the file."""
    facts = kept("images.json")
    linux = [_complete(image, facts) for image in servers(documents, facts["dates"])]
    others = [
        _complete(image, facts)
        for folder, engine in _ENGINES.items()
        for image in _listed(documents, facts["dates"], folder, engine)
    ]
    made = [image for image in (*linux, *others) if version_key(image["version"]) >= version_key(facts["since"])]
    # Sorting is stable: of one version the Amazon Linux image comes first, and of those the newest.
    made.sort(key=lambda image: (*version_key(image["version"]),), reverse=True)
    made.sort(key=lambda image: list(facts["engines"]).index(image["engine"]))
    listed = [*facts["images"], *neuron.images(documents), *made]
    return as_text({"date": documents.date, "sources": facts["sources"], "images": listed})


def servers(documents: Documents, dates: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """The Amazon Linux images, newest first: those of the changelog, and those that it does not have yet.

    `dates` are the days on which images came that have none in a document.
    """
    released = list(_RELEASE.finditer(documents.text(f"{_ROOT}/{_CHANGELOG}")))
    known = {release["tag"] for release in released}
    new = [
        image
        for image in _listed(documents, dates, "vllm-server", "vllm")
        if image["tag"] not in known and not _MOVING_TAG.match(image["tag"])
    ]
    yield from sorted(new, key=lambda image: str(image["tag"]), reverse=True)
    for release in released:
        yield {
            "engine": "vllm" if release["cuda"] else "vllm-arm64-cpu",
            "repository": "vllm",
            **{name: release[name] or "" for name in ("version", "tag", "cuda", "python", "date")},
            "source": f"{_REPOSITORY} {_CHANGELOG}",
        }


def _listed(documents: Documents, dates: Mapping[str, str], folder: str, engine: str) -> Iterator[dict[str, Any]]:
    """The images of SageMaker in a folder of AWS's image data."""
    for path, data in documents.yaml_files(f"{_ROOT}/{_DATA}/{folder}", "*.yml"):
        if not path.endswith("-sagemaker.yml") and "LMI" not in data.get("engine", ""):
            continue
        image = published.image_data(data)
        yield {
            "engine": engine,
            "repository": data.get("ecr_repository", folder),
            **image,
            "date": dates.get(image["tag"], documents.date),
            "source": f"{_REPOSITORY} {path.removeprefix(f'{_ROOT}/')}",
        }


def _complete(image: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
    """With what is in the image, by the day on which it came: AWS's data does not say so."""
    engine, major = facts["engines"][image["engine"]], image["cuda"].partition(".")[0]
    since = {
        name: next((value for day, value in reversed(changes) if day <= image["date"]), "")
        for name, changes in engine["changes"].items()
    }
    made = {
        "platform": "sagemaker",
        "engine": image["engine"],
        "version": image["version"],
        "registry": facts["registry"],
        "repository": image["repository"],
        "tag": image["tag"],
        "cuda": image["cuda"],
        "driver": facts["drivers"].get(major, ""),
        "python": image["python"],
        **since,
        "ami": facts["amis"].get(major, ""),
        "size_gb": None,
        "date": image["date"],
        "source": image["source"],
        "note": engine["note"],
    }
    return {**made, **facts["exceptions"].get(image["tag"], {})}
