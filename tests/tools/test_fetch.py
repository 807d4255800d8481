"""The documents are read again as they are stored: from packages here, from public addresses on the network."""

from __future__ import annotations

import io
import json
import shutil
import tarfile
import zipfile
from pathlib import Path

import httpx
import pytest

from tools.catalogue import neuron, recipes
from tools.catalogue.__main__ import DOCUMENTS
from tools.catalogue.documents import documents_in
from tools.catalogue.fetch import fetch
from tools.catalogue.generators import GENERATORS

HEAD = "amazon/GPT-OSS-20B-P-EAGLE"

CONTAINERS = "/aws-neuron/deep-learning-containers/HEAD"
GITHUB_FILES = {
    f"{CONTAINERS}/README.md": neuron.README,
    "/aws-neuron/aws-neuron-sdk/HEAD/release-notes/components/runtime.rst": neuron.RUNTIME_NOTES,
    "/awslabs/amazon-eks-ami/HEAD/CHANGELOG.md": neuron.AMI_CHANGELOG,
} | {
    f"{CONTAINERS}/vllm/inference/{folder.name}/Dockerfile.neuronx": neuron.dockerfile(folder.name)
    for folder in (DOCUMENTS / "aws-neuron" / "vllm" / "inference").iterdir()
}


def archive() -> bytes:
    """AWS's repository as GitHub packs it, with a file that is not wanted."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as packed:
        packed.add(DOCUMENTS / "deep-learning-containers", "deep-learning-containers-main")
        packed.add(DOCUMENTS / "date", "deep-learning-containers-main/docs/../../date")
    return made.getvalue()


def recipes_archive() -> bytes:
    """vLLM's recipes as GitHub packs them, with prose that is not wanted."""
    made, document = io.BytesIO(), documents_in(DOCUMENTS).json(recipes.DOCUMENT)
    with tarfile.open(fileobj=made, mode="w:gz", pax_headers={"comment": document["commit"]}) as packed:
        for path, recipe in document["recipes"].items():
            settings = {name: part for name, part in recipe.items() if name != "commands"}
            guide = "".join(f"It starts so:\n```bash\n{command}\n```\n" for command in recipe["commands"])
            text = json.dumps({**settings, "meta": {"title": "Any"}, "guide": guide}).encode()
            member = tarfile.TarInfo(f"recipes-main/{path}")
            member.size = len(text)
            packed.addfile(member, io.BytesIO(text))
    return made.getvalue()


def wheel(package: str, folder: Path) -> Path:
    """AWS's SDK with its lists."""
    path = folder / f"{package}.whl"
    with zipfile.ZipFile(path, "w") as packed:
        for file in (DOCUMENTS / "sagemaker-core" / "image_uri_config").iterdir():
            packed.write(file, f"sagemaker/core/image_uri_config/{file.name}")
    return path


def answer(request: httpx.Request) -> httpx.Response:
    if request.url.host == "codeload.github.com":
        return httpx.Response(200, content=recipes_archive() if "vllm" in request.url.path else archive())
    if request.url.host == "raw.githubusercontent.com":
        stored = DOCUMENTS / GITHUB_FILES[request.url.path]
        return httpx.Response(200, text=f"# A line that no generator reads\n{stored.read_text()}")
    if request.url.path == f"/api/models/{HEAD}":
        return httpx.Response(200, json={"id": HEAD, "sha": "abc", "siblings": []})
    if "/AmazonSageMaker/current/us-west-2/" in request.url.path:
        attributes = {"usagetype": "USW2-Host:ml.g6e.xlarge", "location": "US West (Oregon)"}
        price = {"priceDimensions": {"B": {"unit": "Hrs", "pricePerUnit": {"USD": "2.6054"}}}}
        listed = {"publicationDate": "2026-12-01T00:00:00Z", "products": {"A": {"attributes": attributes}}}
        return httpx.Response(200, json={**listed, "terms": {"OnDemand": {"A": {"A.A": price}}}})
    return httpx.Response(404)


def test_what_is_fetched_makes_the_same_files_but_for_what_is_new(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "documents"
    fetch(folder, httpx.Client(transport=httpx.MockTransport(answer)), wheel)
    (folder / "date").write_text((DOCUMENTS / "date").read_text())
    read = documents_in(folder)

    for path in (*GITHUB_FILES.values(), recipes.DOCUMENT):
        assert read.text(path) == (DOCUMENTS / path).read_text(), "cut in the same way"
    for name in ("images.json", "registries.json", "engines/neuron.json"):
        assert GENERATORS[name](read) == GENERATORS[name](documents_in(DOCUMENTS))
    instances = {item["name"]: item for item in json.loads(GENERATORS["instances.json"](read))["instances"]}
    before = {
        item["name"]: item for item in json.loads(GENERATORS["instances.json"](documents_in(DOCUMENTS)))["instances"]
    }
    assert [name for name in before if instances[name] != before[name]] == ["ml.g6e.xlarge"]
    assert instances["ml.g6e.xlarge"]["prices"][0]["usd_per_hour"] == 2.6054
    heads = {head["repo"]: head for head in json.loads(GENERATORS["heads.json"](read))["heads"]}
    assert heads[HEAD]["revision"] == "abc"
    assert "not read: prices of AmazonEC2 in us-east-1: Client error '404 Not Found'" in capsys.readouterr().err


def test_a_document_that_cannot_be_read_stays(tmp_path: Path) -> None:
    folder = shutil.copytree(DOCUMENTS, tmp_path / "documents")
    nothing = httpx.Client(transport=httpx.MockTransport(lambda _: httpx.Response(503)))
    fetch(folder, nothing, wheel)
    for repository in ("deep-learning-containers", "aws-neuron", "amazon-eks-ami"):
        for file in (path for path in (DOCUMENTS / repository).rglob("*") if path.is_file()):
            assert (folder / file.relative_to(DOCUMENTS)).read_bytes() == file.read_bytes()
