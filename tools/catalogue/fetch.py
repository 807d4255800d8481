"""Read the documents anew: from public addresses without credentials, and from Python packages as they are installed.

Only what the generators use is kept of each, so that the folder stays small enough to be committed. A document that
cannot be read stays as it was.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import botocore.session
import httpx

from toolkit import documents
from toolkit.catalog import published
from tools.catalogue import aws_errors, neuron, recipes
from tools.catalogue.documents import kept

REGIONS = {"AmazonSageMaker": ("us-east-1", "us-west-2"), "AmazonEC2": ("us-east-1",)}
_CONTAINERS = "https://codeload.github.com/aws/deep-learning-containers/tar.gz/refs/heads/main"
_RECIPES = f"https://codeload.github.com/{recipes.REPOSITORY}/tar.gz/refs/heads/main"
_CONTAINER_FILES = re.compile(
    r"^[^/]+/(docs/src/data/(?:vllm|vllm-server|djl-inference|huggingface-vllm)/\S+\.yml|docs/vllm/changelog/index\.md)$"
)
_FILES = "https://raw.githubusercontent.com"
_ARCHIVE = documents.Limits(size=256 * 1024**2, seconds=300.0)
_HUB = "https://huggingface.co"
_ENUMS = ("ProductionVariantInstanceType", "ProductionVariantInferenceAmiVersion")
_IMAGE_FILES = ("vllm", "vllm-server")
_EC2_FIELDS = (
    "InstanceType",
    "ProcessorInfo",
    "VCpuInfo",
    "MemoryInfo",
    "InstanceStorageInfo",
    "GpuInfo",
    "NeuronInfo",
)

Download = Callable[[str, Path], Path]
"""Puts the newest wheel of a package into a folder."""


def fetch(folder: Path, client: httpx.Client | None = None, download: Download | None = None) -> None:
    """Read all documents into the folder; what could not be read is said on stderr."""
    facts = kept("instances.json")
    types = re.compile(rf"^(ml\.)?({'|'.join(map(re.escape, facts['families']))})\.(?!metal)")
    with client or httpx.Client(timeout=120.0) as opened:
        steps: dict[str, Callable[[], None]] = {
            "botocore": lambda: _botocore(folder),
            "EC2's types": lambda: _ec2_types(folder, types),
            "types by region": lambda: _hosting_types(folder, types),
            "AWS's containers": lambda: _containers(folder, opened),
            "Neuron's containers": lambda: _neuron_containers(folder, opened),
            "the release notes of Neuron's runtime": lambda: _runtime_notes(folder, opened),
            "the changelog of EKS's AMI": lambda: _ami_changelog(folder, opened),
            "vLLM's recipes": lambda: _vllm_recipes(folder, opened),
            "AWS's SDK": lambda: _image_uris(folder, download or _pip_download),
            "the hub": lambda: _hub(folder, opened, [head["repo"] for head in kept("heads.json")["heads"]]),
            **{
                f"prices of {service} in {region}": partial(_prices, folder, opened, service, region, types)
                for service, regions in REGIONS.items()
                for region in regions
            },
        }
        for name, step in steps.items():
            try:
                step()
            except (httpx.HTTPError, OSError, documents.Unfit, subprocess.CalledProcessError) as error:
                sys.stderr.write(f"not read: {name}: {error}\n")
    (folder / "date").write_text(f"{datetime.now(UTC).date()}\n", encoding="utf-8")


def _botocore(folder: Path) -> None:
    model = botocore.session.get_session().get_service_model("sagemaker")
    shapes = {name: {"type": "string", "enum": list(model.shape_for(name).enum)} for name in _ENUMS}  # type: ignore[attr-defined]
    metadata = {"apiVersion": model.api_version, "serviceId": "SageMaker"}
    _write(folder / "botocore" / "sagemaker.json", {"metadata": metadata, "shapes": shapes})
    _write(folder / aws_errors.DOCUMENT, aws_errors.read_meanings())


def _ec2_types(folder: Path, types: re.Pattern[str]) -> None:
    """EC2's DescribeInstanceTypes, as moto copies it."""
    file = _package("moto") / "ec2" / "resources" / "instance_types.json.gz"
    described = json.loads(gzip.decompress(file.read_bytes()))
    entries = [_ec2_type(described[name]) for name in sorted(described) if types.match(name)]
    text = ",\n".join(json.dumps(entry) for entry in entries)
    _write_text(folder / "ec2" / "instance-types.json", f'{{"InstanceTypes": [\n{text}\n]}}\n')


def _ec2_type(described: dict[str, Any]) -> dict[str, Any]:
    """Only the fields that the generator reads."""
    entry = {name: described[name] for name in _EC2_FIELDS if described.get(name)}
    entry["ProcessorInfo"] = {"SupportedArchitectures": entry["ProcessorInfo"]["SupportedArchitectures"]}
    entry["VCpuInfo"] = {"DefaultVCpus": entry["VCpuInfo"]["DefaultVCpus"]}
    if "InstanceStorageInfo" in entry:
        entry["InstanceStorageInfo"] = {"TotalSizeInGB": entry["InstanceStorageInfo"]["TotalSizeInGB"]}
    if "GpuInfo" in entry:
        names = ("Name", "Manufacturer", "Count", "MemoryInfo")
        entry["GpuInfo"] = {"Gpus": [{name: gpu[name] for name in names} for gpu in entry["GpuInfo"]["Gpus"]]}
    if "NeuronInfo" in entry:
        entry["NeuronInfo"] = {"NeuronDevices": entry["NeuronInfo"]["NeuronDevices"]}
    return entry


def _hosting_types(folder: Path, types: re.Pattern[str]) -> None:
    """Types that AWS prices for hosting, by region, as cfn-lint copies them from the price list."""
    extensions = _package("cfnlint") / "data" / "schemas" / "extensions"
    listed = json.loads((extensions / "aws_sagemaker_hosting" / "instancetype_enum.json").read_text(encoding="utf-8"))
    lines = [
        f"{json.dumps(region)}: {json.dumps({'enum': [name for name in found['enum'] if types.match(name)]})}"
        for region, found in listed.items()
        if isinstance(found, dict) and "enum" in found
    ]
    _write_text(folder / "cfn-lint" / "sagemaker-hosting-instance-types.json", "{\n" + ",\n".join(lines) + "\n}\n")


def _containers(folder: Path, client: httpx.Client) -> None:
    """AWS's data files on its images, and their changelog."""
    content = _get(client, _CONTAINERS, _ARCHIVE)
    root = folder / "deep-learning-containers"
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        files = {
            found[1]: member for member in archive if member.isfile() and (found := _CONTAINER_FILES.match(member.name))
        }
        texts = {path: opened.read() for path, member in files.items() if (opened := archive.extractfile(member))}
    shutil.rmtree(root, ignore_errors=True)
    for path, text in texts.items():
        _write_text(root / path, text.decode())


def _vllm_recipes(folder: Path, client: httpx.Client) -> None:
    """The settings of vLLM's recipes, and the commands in their guides."""
    with tarfile.open(fileobj=io.BytesIO(_get(client, _RECIPES, _ARCHIVE))) as archive:
        names = {path: member for member in archive if recipes.FILES.fullmatch(path := member.name.partition("/")[2])}
        texts = {path: opened.read().decode() for path in sorted(names) if (opened := archive.extractfile(names[path]))}
        document = {
            "commit": archive.pax_headers["comment"],
            "recipes": {path: recipes.cut(text) for path, text in texts.items()},
        }
    _write(folder / recipes.DOCUMENT, document)


def _neuron_containers(folder: Path, client: httpx.Client) -> None:
    """The rows of vLLM's images in the README, and the runtime in the newest Dockerfile of each."""
    repository = "aws-neuron/deep-learning-containers"
    rows = list(neuron.ROW.finditer(_github_file(client, repository, "README.md")))
    texts = {}
    for path in dict.fromkeys(neuron.dockerfile(row["version"]) for row in rows):
        text = _github_file(client, repository, path.removeprefix(f"{neuron.CONTAINERS}/"))
        texts[path] = "".join(f"{line}\n" for line in text.splitlines() if neuron.RUNTIME.match(line))
    _write_text(folder / neuron.README, "".join(f"{row[0]}\n" for row in rows))
    for path, text in texts.items():
        _write_text(folder / path, text)


def _runtime_notes(folder: Path, client: httpx.Client) -> None:
    """Only the sentences on which driver and runtime work together; some stand there twice."""
    text = _github_file(client, "aws-neuron/aws-neuron-sdk", "release-notes/components/runtime.rst")
    wanted = (
        line for line in text.splitlines() if neuron.NEEDS_RUNTIME.search(line) or neuron.NEEDS_DRIVER.search(line)
    )
    _write_text(folder / neuron.RUNTIME_NOTES, "".join(f"{line}\n" for line in dict.fromkeys(wanted)))


def _ami_changelog(folder: Path, client: httpx.Client) -> None:
    """Only the releases and the driver in each, which stands there for every version of Kubernetes."""
    wanted: list[str] = []
    for line in _github_file(client, "awslabs/amazon-eks-ami", "CHANGELOG.md").splitlines():
        if (neuron.RELEASE.match(line) or neuron.DRIVER.search(line)) and line not in wanted[-1:]:
            wanted.append(line)
    _write_text(folder / neuron.AMI_CHANGELOG, "".join(f"{line}\n" for line in wanted))


def _image_uris(folder: Path, download: Download) -> None:
    """The registries and images that AWS's SDK lists."""
    with TemporaryDirectory() as wheels, zipfile.ZipFile(download("sagemaker-core", Path(wheels))) as wheel:
        for name in _IMAGE_FILES:
            listed = json.loads(wheel.read(f"sagemaker/core/image_uri_config/{name}.json"))
            _write(folder / "sagemaker-core" / "image_uri_config" / f"{name}.json", listed)


def _hub(folder: Path, client: httpx.Client, repos: Iterable[str]) -> None:
    """Commit, date and gate of each head, and what its config.json says of its size."""
    for repo in repos:
        answer = client.get(f"{_HUB}/api/models/{repo}")
        if answer.is_success:
            found = documents.parse(published.Repository, answer.content)
            _write(folder / "hub" / f"{repo}.json", {"id": repo, **vars(found)})
        config = client.get(f"{_HUB}/{repo}/resolve/main/config.json", follow_redirects=True)
        if config.is_success:
            _write(folder / "hub" / f"{repo}.config.json", _sizes(documents.decode(config.content)))


def _sizes(config: Any) -> dict[str, Any]:
    names = ("num_hidden_layers", "max_position_embeddings", "transformer_layer_config")
    found = {name: config[name] for name in names if isinstance(config, dict) and name in config}
    if isinstance(found.get("transformer_layer_config"), dict):
        found["transformer_layer_config"] = _sizes(found["transformer_layer_config"])
    return found


def _prices(folder: Path, client: httpx.Client, service: str, region: str, types: re.Pattern[str]) -> None:
    """AWS's price list, with only the products that the generator reads."""
    listed = published.price_list(_get(client, published.price_list_url(service, region), published.PRICES), service)
    usage, operation = ("Host", "RunInstance") if service == "AmazonSageMaker" else ("BoxUsage", "RunInstances")
    prices = {name: usd for name, usd in sorted(listed.prices.items()) if types.match(name)}
    dimensions = {name: {"unit": "Hrs", "pricePerUnit": {"USD": str(usd)}} for name, usd in prices.items()}
    _write(
        folder / "pricing" / service / f"{region}.json",
        {
            "publicationDate": listed.date,
            "products": {
                name: {"attributes": {"usagetype": f"{usage}:{name}", "operation": operation}} for name in prices
            },
            "terms": {"OnDemand": {name: {"1": {"priceDimensions": {"1": item}}} for name, item in dimensions.items()}},
        },
    )


def _get(client: httpx.Client, url: str, limits: documents.Limits) -> bytes:
    answer = documents.request(client, "GET", url, limits)
    return answer.raise_for_status().content


def _github_file(client: httpx.Client, repository: str, path: str) -> str:
    return _get(client, f"{_FILES}/{repository}/HEAD/{path}", _ARCHIVE).decode()


def _pip_download(package: str, folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), package]
    subprocess.run(command, check=True)
    return next(folder.glob("*.whl"))


def _package(name: str) -> Path:
    found = find_spec(name)
    if found is None or found.origin is None:
        raise FileNotFoundError(f"the package {name} is not installed")
    return Path(found.origin).parent


def _write(path: Path, data: Any) -> None:
    _write_text(path, json.dumps(data, indent=1) + "\n")


def _write_text(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
