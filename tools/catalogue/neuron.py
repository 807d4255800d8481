"""engines/neuron.json and the Neuron images of images.json.

SDK, runtime and tag of each image come from github aws-neuron/deep-learning-containers, which drivers work from the
release notes of Neuron's runtime, and the driver in each release of EKS's AMI from that AMI's changelog. What needs
judgement (methods, families, notes) is kept by hand, and so is an image that the stored documents do not have yet.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from toolkit.catalog.lookup import version_key
from tools.catalogue.documents import Documents, as_text, kept

CONTAINERS = "aws-neuron"
README = f"{CONTAINERS}/README.md"
RUNTIME_NOTES = f"{CONTAINERS}/runtime.rst"
AMI_CHANGELOG = "amazon-eks-ami/CHANGELOG.md"
# An image in the README's table of vLLM's; the newest SDK comes first.
ROW = re.compile(
    r"^\| \[VLLM [\d.]+\]\(\S+/vllm/inference/(?P<version>[\d.]+)/Dockerfile\.neuronx\) *\| *(?P<packages>[^|]+?) *"
    r"\| *Neuron (?P<sdk>[\d.]+) *\| *(?P<families>\S+) *\| *\S+ \(py(?P<python>\d+)\) *"
    r"\| *public\.ecr\.aws/neuron/pytorch-inference-vllm-neuronx:(?P<tag>\S+) *\|$",
    re.MULTILINE,
)
RUNTIME = re.compile(r"^ARG NEURONX_RUNTIME_LIB_VERSION=(?P<version>\d+\.\d+\.\d+)", re.MULTILINE)
NEEDS_RUNTIME = re.compile(r"Driver (?P<driver>[\d.]+) requires Neuron Runtime Library (?P<runtime>\d+\.\d+) or later")
NEEDS_DRIVER = re.compile(
    r"Runtime Library (?P<runtime>[\d.]+) is not backward-compatible with Neuron Driver "
    r"(?P<major>\d+)\.(?P<minor>\d+) or earlier"
)
RELEASE = re.compile(r"^# AMI Release (?P<release>v\d+)$", re.MULTILINE)
DRIVER = re.compile(r"<td[^>]*>(?P<driver>[\d.]+)-dkms</td>")


def dockerfile(version: str) -> str:
    """Path of an image's Dockerfile in the documents; that in the repository is the same without the first folder."""
    return f"{CONTAINERS}/vllm/inference/{version}/Dockerfile.neuronx"


def generate(documents: Documents) -> str:
    """The text of engines/neuron.json."""
    facts = kept("neuron.json")
    notes = documents.text(RUNTIME_NOTES)
    return as_text(
        {
            **{key: facts[key] for key in ("engines", "programs", "sections", "is_default", "summary")},
            "date": documents.date,
            **{key: facts[key] for key in ("sources", "default_max_num_seqs", "sagemaker_driver")},
            "sagemaker_driver_seen": facts["sagemaker_driver_seen"],
            "runtime_of_driver": {found["driver"]: found["runtime"] for found in NEEDS_RUNTIME.finditer(notes)},
            "eks_ami_releases": list(_ami_releases(documents, facts["oldest_ami_driver"])),
            **{key: facts[key] for key in ("compile_minutes_per_gb", "published")},
            "generations": [_generation(image, notes) for image in _all(documents, facts)],
        }
    )


def images(documents: Documents) -> Iterator[dict[str, Any]]:
    """The entries of images.json, newest first."""
    facts = kept("neuron.json")
    for image in _all(documents, facts):
        yield {
            "platform": "upstream",
            "engine": image["engine"],
            "version": image["version"],
            "registry": "public.ecr.aws/neuron",
            "repository": "pytorch-inference-vllm-neuronx",
            "tag": image["tag"],
            "cuda": "",
            "driver": "",
            "python": image["python"],
            "standards_version": "",
            "entrypoint": "own",
            "supervisor_quoting": "unknown",
            "ami": facts["image"]["ami"],
            "size_gb": None,
            "date": image.get("date", documents.date),
            "source": facts["sources"]["images"],
            "note": f"{image['image_note']}; {facts['image']['note']}",
        }


def _all(documents: Documents, facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every image: what is kept by hand, and over it what the documents say."""
    by_hand: dict[str, dict[str, Any]] = facts["generations"]
    found = {version: {"version": version, **fields} for version, fields in by_hand.items()}
    read: set[str] = set()
    for row in ROW.finditer(documents.text(README)):
        version = row["version"]
        if version in read or version in facts["left_out"]:
            continue
        read.add(version)
        found[version] = found.get(version, _unknown(row)) | {
            "sdk": row["sdk"],
            "runtime": _runtime(documents, version),
            "python": f"{row['python'][0]}.{row['python'][1:]}",
            "tag": row["tag"],
        }
    return sorted(found.values(), key=lambda image: version_key(image["version"]), reverse=True)


def _unknown(row: re.Match[str]) -> dict[str, Any]:
    """An image that nobody has judged yet: which methods it can do stands in no document that can be read so."""
    engine = "vllm-neuron" if "vllm-neuron" in row["packages"].split(", ") else "nxd-inference"
    unknown = "new; its drafting methods were not looked at yet"
    families = row["families"].split(",")
    return {
        "engine": engine,
        "version": row["version"],
        "families": families,
        "methods": {},
        "note": unknown,
        "image_note": unknown,
    }


def _runtime(documents: Documents, version: str) -> str:
    found = RUNTIME.search(documents.text(dockerfile(version)))
    if found is None:
        raise ValueError(f"{dockerfile(version)} does not say NEURONX_RUNTIME_LIB_VERSION")
    return found["version"]


def _generation(image: Mapping[str, Any], notes: str) -> dict[str, Any]:
    needed = {
        f"{found['major']}.{int(found['minor']) + 1}"
        for found in NEEDS_DRIVER.finditer(notes)
        if version_key(image["runtime"]) >= version_key(found["runtime"])
    }
    lowest = max(needed, key=version_key, default="")
    drivers = dict.fromkeys(image["families"], lowest) if lowest else image.get("drivers", {})
    named = {key: image[key] for key in ("engine", "version", "sdk", "runtime", "families")}
    return {**named, "drivers": drivers, "methods": image["methods"], "note": image["note"]}


def _ami_releases(documents: Documents, oldest: str) -> Iterator[dict[str, str]]:
    """The last release with each minor version of the driver, newest first."""
    _, *parts = RELEASE.split(documents.text(AMI_CHANGELOG))
    seen: set[tuple[int, ...]] = set()
    first = version_key(oldest)[:2]
    for release, text in zip(parts[::2], parts[1::2], strict=True):
        for driver in sorted({found["driver"] for found in DRIVER.finditer(text)}, key=version_key, reverse=True):
            minor = version_key(driver)[:2]
            if minor not in seen and minor >= first:
                seen.add(minor)
                yield {"release": release, "driver": driver}
