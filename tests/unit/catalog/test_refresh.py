"""`toolkit catalog update`: public documents on loopback, read into the user's own folder."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from toolkit.api.facts import CatalogUpdate, catalog_status, catalog_update
from toolkit.api.outside import Outside
from toolkit.catalog import lookup, published, updates
from toolkit.catalog.refresh import Sources
from toolkit.errors import PlatformError, UsageError

TODAY = date(2026, 11, 22)
LIST = "/offers/v1.0/aws/AmazonSageMaker/current/us-east-1/index.json"
REPO = "amazon/GPT-OSS-20B-P-EAGLE"
HUB_ANSWER = {"id": REPO, "sha": "abc123", "lastModified": "2026-05-01T10:00:00.000Z", "gated": "auto"}
IMAGE = """\
framework: vLLM
version: "0.34.0"
python: py312
cuda: cu130
tags:
  - "0.34.0-gpu-py312-cu130-ubuntu24.04-sagemaker"
"""


def price_list(prefix: str = "USE1", **usd_per_hour: str) -> dict[str, Any]:
    """In the form of AWS's price list: hosting of each size of g7e, and what else is priced there. Figures made up."""
    hosting = {f"{prefix}-Host:ml.g7e.{size}": price for size, price in usd_per_hour.items()}
    others = {
        f"{prefix}-Train:ml.g7e.2xlarge": "9.99",
        f"{prefix}-AsyncInf:ml.g7e.2xlarge": "9.98",
        f"{prefix}-Studio:JupyterLab:ml.g7e.2xlarge": "9.97",
        f"{prefix}-Host:VolumeUsage.gp3": "0.11",
        f"{prefix}-Host:ml.m5.large": "0.115",
        f"{prefix}-Host:ml.p7.48xlarge": "99.5",
    }
    skus = {f"SKU{number}": item for number, item in enumerate({**others, **hosting}.items())}
    return {
        "formatVersion": "v1.0",
        "offerCode": "AmazonSageMaker",
        "version": "20261119000000",
        "publicationDate": "2026-11-19T00:00:00Z",
        "products": {sku: product(sku, usagetype) for sku, (usagetype, _) in skus.items()},
        "terms": {
            "OnDemand": {sku: {f"{sku}.JRTCKXETXF": term(sku, price)} for sku, (_, price) in skus.items()},
            "Reserved": {},
        },
    }


def product(sku: str, usagetype: str) -> dict[str, Any]:
    attributes = {
        "servicecode": "AmazonSageMaker",
        "locationType": "AWS Region",
        "regionCode": "us-east-1",
        "component": "Hosting" if "-Host:" in usagetype else "other",
        "instanceName": usagetype.rpartition(":")[2],
        "usagetype": usagetype,
        "operation": "RunInstance",
    }
    return {"sku": sku, "productFamily": "ML Instance", "attributes": attributes}


def term(sku: str, price: str) -> dict[str, Any]:
    dimension = {"unit": "Hrs", "beginRange": "0", "endRange": "Inf", "pricePerUnit": {"USD": price}}
    return {
        "offerTermCode": "JRTCKXETXF",
        "sku": sku,
        "effectiveDate": "2026-11-01T00:00:00Z",
        "priceDimensions": {f"{sku}.JRTCKXETXF.6YS6EN2CT7": dimension},
    }


@dataclass(frozen=True)
class Raw:
    """An answer of its own making: `size` is what the server says of its length."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    size: int | None = None


class Site(ThreadingHTTPServer):
    """Answers each path with the text or JSON it was given, or with a Raw one, every other one with 404.

    A path may be given with its query; else it stands for every query.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: dict[str, Any] = {}
        self.asked: list[str] = []
        self.url = f"http://127.0.0.1:{self.server_port}"

    def prices(self, region: str, prefix: str = "USE1", **usd_per_hour: str) -> None:
        self.answers[published.price_list_url("AmazonSageMaker", region, "")] = price_list(prefix, **usd_per_hour)

    @property
    def sources(self) -> Sources:
        paths = ("list", "data", "simple", "recipes.tar.gz")
        return Sources(self.url, self.url, *(f"{self.url}/{path}" for path in paths))


class _Handler(BaseHTTPRequestHandler):
    server: Site

    def do_GET(self) -> None:
        answers = self.server.answers
        self.server.asked.append(self.path)
        answer = answers.get(self.path, answers.get(self.path.partition("?")[0]))
        if isinstance(answer, Raw):
            self.send_response(answer.status)
            for name, value in {"Content-Length": str(answer.size or len(answer.body)), **answer.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer.body)
            return
        self.send_response(404 if answer is None else 200)
        self.end_headers()
        self.wfile.write((answer if isinstance(answer, str) else json.dumps(answer)).encode())

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def site() -> Iterator[Site]:
    with Site() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def update(site: Site, *regions: str, ec2: bool = False) -> CatalogUpdate:
    return catalog_update(
        regions,
        ec2=ec2,
        _outside=Outside(today=lambda: TODAY, open_web=lambda: httpx.Client(timeout=5), sources=site.sources),
    )


def shipped() -> str:
    """A digest of the files that came with the toolkit."""
    files = sorted(lookup.FOLDER.rglob("*.json"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def test_prices_of_two_regions_are_held_and_the_installed_files_stay(site: Site) -> None:
    before = shipped()
    site.prices("us-east-1", **{"2xlarge": "4.1"})
    site.prices("eu-central-1", "EUC1", **{"2xlarge": "5.25"})

    update(site, "us-east-1", "eu-central-1")

    instance = lookup.instance("ml.g7e.2xlarge")
    assert instance
    held = {region: price for region in ("us-east-1", "eu-central-1") if (price := instance.price(region))}
    assert {region: price.usd_per_hour for region, price in held.items()} == {"us-east-1": 4.1, "eu-central-1": 5.25}
    assert (held["eu-central-1"].date, held["eu-central-1"].quality) == ("2026-11-19", "good")
    assert held["eu-central-1"].source == f"{site.url}/offers/v1.0/aws/AmazonSageMaker/current/eu-central-1/index.json"
    assert [*catalog_status(_outside=Outside(today=lambda: TODAY)).read] == [
        "prices in us-east-1",
        "prices in eu-central-1",
    ]
    assert shipped() == before


def test_without_a_region_those_that_are_held_are_read_again(site: Site) -> None:
    site.prices("eu-central-1", "EUC1", **{"2xlarge": "5.25"})
    update(site, "eu-central-1")
    site.prices("eu-central-1", "EUC1", **{"2xlarge": "5.5"})
    found = update(site)
    assert "ml.g7e.2xlarge: 5.25 USD (eu-central-1, 2026-11-19) -> 5.5 USD (eu-central-1, 2026-11-19)" in found.changed
    assert catalog_status(_outside=Outside(today=lambda: TODAY)).regions == ("eu-central-1",)


def test_only_hosting_per_hour_is_a_price_and_a_type_of_another_list_keeps_its_own(site: Site) -> None:
    site.prices("us-east-1", **{"2xlarge": "0.0000000000", "4xlarge": "5.0"})
    before = lookup.instance("ml.g7e.2xlarge")
    update(site, "us-east-1")
    instance = lookup.instance("ml.g7e.2xlarge")
    assert before
    assert instance
    assert instance.prices == before.prices


def test_ec2_prices_are_those_of_plain_linux(site: Site) -> None:
    path = published.price_list_url("AmazonEC2", "us-east-1", "")
    listed = price_list(**{"2xlarge": "1.0"})
    for sku, usage, operation, usd in (
        ("A", "BoxUsage:g7e.2xlarge", "RunInstances", "3.36312"),
        ("B", "BoxUsage:g7e.2xlarge", "RunInstances:0002", "3.7"),
        ("C", "DedicatedUsage:g7e.2xlarge", "RunInstances", "3.6"),
    ):
        listed["products"][sku] = {"attributes": {"usagetype": usage, "operation": operation}}
        listed["terms"]["OnDemand"][sku] = {f"{sku}.X": term(sku, usd)}
    site.answers[path] = listed

    update(site, "us-east-1", ec2=True)

    instance = lookup.instance("ml.g7e.2xlarge")
    assert instance
    assert [(price.usd_per_hour, price.region) for price in instance.ec2_prices] == [(3.36312, "us-east-1")]


def test_names_that_the_catalogue_does_not_have_are_shown_as_new(site: Site) -> None:
    site.prices("us-east-1", **{"2xlarge": "4.1"})
    site.answers["/simple/vllm/"] = {"name": "vllm", "versions": ["0.30.0", "0.34.0rc1", "0.34.0", "0.33.0"]}
    site.answers["/api/models"] = [{"id": REPO}, {"id": "amazon/Qwen9-P-EAGLE"}]
    site.answers["/list/vllm"] = [{"name": "0.34.0-gpu-sagemaker.yml"}, {"name": "0.34.0-gpu-ec2.yml"}, {"name": "x"}]
    site.answers["/list/vllm-server"] = [{"name": "0.19.1+amzn2023.6ef1efd5-gpu-sagemaker.yml"}]
    site.answers["/data/vllm/0.34.0-gpu-sagemaker.yml"] = IMAGE

    update(site)

    found = catalog_status(_outside=Outside(today=lambda: TODAY))
    assert found.types == ("ml.p7.48xlarge",)
    assert found.versions == ("0.34.0",)
    assert found.heads == ("amazon/Qwen9-P-EAGLE",)
    assert found.images == ("vllm:0.34.0-gpu-py312-cu130-ubuntu24.04-sagemaker",)
    image = lookup.images("sagemaker", "vllm")[0]
    assert (image.version, image.entrypoint, image.registry) == ("0.34.0", "python", "763104351884")


def archive(**recipes: str) -> bytes:
    """As GitHub packs a repository."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as files:
        for path, text in recipes.items():
            member = tarfile.TarInfo(f"recipes-main/{path}")
            member.size = len(text.encode())
            files.addfile(member, io.BytesIO(text.encode()))
    return packed.getvalue()


def test_heads_that_vllms_recipes_name_are_shown_once(site: Site) -> None:
    config = '{"method": "dspark", "model": "%s", "num_speculative_tokens": 7}'
    recipes = {
        "models/org/one.yaml": f"args: ['--speculative-config', '{config % 'org/One-DSpark'}']",
        "models/org/two.yaml": config % REPO + config % "/etc/passwd" + '{"model": "org/Two", "tokens": 1}',
        "README.md": config % "org/Elsewhere",
    }
    site.answers["/recipes.tar.gz"] = Raw(body=archive(**recipes))
    site.answers["/api/models"] = [{"id": "amazon/Qwen9-P-EAGLE"}]
    assert {"new head: org/One-DSpark", "new head: amazon/Qwen9-P-EAGLE"} <= set(update(site).changed)
    found = catalog_status(_outside=Outside(today=lambda: TODAY))
    assert found.heads == ("amazon/Qwen9-P-EAGLE", "org/One-DSpark")
    assert not any(line.startswith("new head") for line in update(site).changed)


# Of z-lab/Qwen3-8B-DFlash-b16, as github vllm-project/speculators@c05b95b3 has it (tests/unit/convert).
DFLASH = {
    "architectures": ["DFlashDraftModel"],
    "model_type": "qwen3",
    "block_size": 16,
    "dflash_config": {"mask_token_id": 151669, "target_layer_ids": [1, 9, 17, 25, 33]},
    "num_hidden_layers": 5,
    "max_position_embeddings": 40960,
    "hidden_size": 4096,
    "vocab_size": 151936,
}
# In the format of speculators, cut.
SPECULATOR: dict[str, Any] = {
    "architectures": ["Eagle3Speculator"],
    "speculators_model_type": "eagle3",
    "transformer_layer_config": {"num_hidden_layers": 1, "max_position_embeddings": 4096, "model_type": "llama"},
    "speculators_config": {
        "algorithm": "eagle3",
        "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 3}],
        "verifier": {"name_or_path": "Qwen/Qwen3-32B", "architectures": ["Qwen3ForCausalLM"]},
    },
}


def listed(site: Site, repo: str, config: Any, **about: Any) -> None:
    site.answers["/api/models"] = [{"id": repo}]
    site.answers[f"/api/models/{repo}"] = {"id": repo, "sha": "abc123", "gated": False, **about}
    site.answers[f"/{repo}/resolve/main/config.json"] = config


def known_head(repo: str) -> dict[str, Any]:
    head = lookup.head(repo)
    assert head
    names = ("method", "target", "layers", "trained_depth", "card_k", "min_engine", "positions", "revision", "license")
    return {name: value for name in names if (value := getattr(head, name))}


def test_a_new_head_is_known_by_its_config_and_its_card(site: Site) -> None:
    repo = "z-lab/Qwen9-8B-DFlash-b16"
    listed(site, repo, DFLASH, cardData={"base_model": ["Qwen/Qwen9-8B"], "license": "mit"})
    assert f"new head: {repo} (dflash for Qwen/Qwen9-8B)" in update(site).changed
    assert known_head(repo) == {
        "method": "dflash",
        "target": "Qwen/Qwen9-8B",
        "layers": 5,
        "trained_depth": 15,
        "min_engine": "0.20.0",
        "positions": 40960,
        "revision": "abc123",
        "license": "mit",
    }
    assert catalog_status(_outside=Outside(today=lambda: TODAY)).heads == (repo,)
    del site.answers[f"/{repo}/resolve/main/config.json"]
    assert not any(line.startswith("new head") for line in update(site).changed)
    assert known_head(repo)["layers"] == 5


def test_a_new_head_in_the_format_of_speculators_names_its_target_and_k(site: Site) -> None:
    listed(site, "RedHatAI/Qwen9-32B-speculator.eagle3", SPECULATOR)
    update(site)
    assert known_head("RedHatAI/Qwen9-32B-speculator.eagle3") == {
        "method": "eagle3",
        "target": "Qwen/Qwen3-32B",
        "layers": 1,
        "card_k": 3,
        "min_engine": "0.16.0",
        "positions": 4096,
        "revision": "abc123",
    }


def test_a_head_that_drafts_all_tokens_in_one_pass_is_no_eagle3_head(site: Site) -> None:
    tiny = Path(__file__).parents[3] / "recipes" / "tiny" / "models" / "p-eagle" / "config.json"
    about = {"cardData": {"base_model": "Qwen/Qwen9-8B"}}
    listed(site, "amazon/Qwen9-8B-P-EAGLE", json.loads(tiny.read_text()) | {"target_model": ""}, **about)
    assert "new head: amazon/Qwen9-8B-P-EAGLE (p-eagle for Qwen/Qwen9-8B)" in update(site).changed


def test_a_recipe_says_whether_a_head_drafts_in_parallel(site: Site) -> None:
    config = '{"method": "eagle3", "model": "org/One", "num_speculative_tokens": 7, "parallel_drafting": true}'
    site.answers["/recipes.tar.gz"] = Raw(body=archive(**{"models/o/1.yaml": f"m:\n  model_id: org/T\na: '{config}'"}))
    assert "new head: org/One (p-eagle for org/T)" in update(site).changed


@pytest.mark.parametrize("tokens", [10**20, True, 0, "7"])
def test_no_number_of_draft_tokens_is_taken_that_can_be_none(site: Site, tokens: Any) -> None:
    proposals = [{"proposal_type": "greedy", "speculative_tokens": tokens}]
    config = {**SPECULATOR, "speculators_config": {**SPECULATOR["speculators_config"], "proposal_methods": proposals}}
    listed(site, "RedHatAI/Qwen9-32B-speculator.eagle3", config)
    update(site)
    assert "card_k" not in known_head("RedHatAI/Qwen9-32B-speculator.eagle3")


def test_what_is_kept_of_a_card_can_be_shown_in_a_terminal_and_a_block_of_one_token_drafts_none(site: Site) -> None:
    about = {"base_model": "Qwen/Qwen9", "license": "mit\x1b[31m"}
    listed(site, "z-lab/Qwen9-DFlash", {**DFLASH, "block_size": 1}, cardData=about)
    update(site)
    found = known_head("z-lab/Qwen9-DFlash")
    assert found["license"] == "mit\\x1b[31m"
    assert "trained_depth" not in found


def test_a_config_of_many_brackets_ends_no_update(site: Site) -> None:
    text = '{"num_speculative_tokens": 1, "x": ' + "[" * 200_000 + "}"
    site.answers["/recipes.tar.gz"] = Raw(body=archive(**{"models/org/one.yaml": text}))
    assert not any("recipes" in line for line in update(site).failed)


NAMED = '{"method": "dspark", "model": "org/One-DSpark", "num_speculative_tokens": 7}'
RECIPE = f"model:\n  model_id: \"org/One\"\nargs: ['{NAMED}']\n"


def test_a_head_that_cannot_be_read_for_now_is_read_by_the_next_update(site: Site) -> None:
    site.answers["/recipes.tar.gz"] = Raw(body=archive(**{"models/org/one.yaml": RECIPE}))
    site.answers["/api/models/org/One-DSpark"] = Raw(status=503)
    site.answers["/simple/vllm/"] = {"versions": []}
    assert any("org/One-DSpark answered 503" in line for line in update(site).unread)
    assert lookup.head("org/One-DSpark") is None
    config = {"architectures": ["DSparkDraftModel"], "num_hidden_layers": 5, "target_model": "org/Other"}
    listed(site, "org/One-DSpark", config)
    update(site)
    assert known_head("org/One-DSpark")["layers"] == 5
    assert known_head("org/One-DSpark")["target"] == "org/Other"


def test_each_head_is_asked_for_once(site: Site) -> None:
    site.answers["/recipes.tar.gz"] = Raw(body=archive(**{"models/org/one.yaml": RECIPE}))
    listed(site, "z-lab/strange-DFlash", {})
    for _ in range(2):
        site.asked.clear()
        update(site)
        assert site.asked.count("/z-lab/strange-DFlash/resolve/main/config.json") == 1


def test_the_first_version_of_a_head_is_that_of_its_class(site: Site) -> None:
    config = {**DFLASH, "architectures": ["DFlash2DraftModel"]}
    listed(site, "z-lab/Qwen9-DFlash2", config, cardData={"base_model": "Qwen/Qwen9"})
    update(site)
    assert known_head("z-lab/Qwen9-DFlash2")["min_engine"] == "0.28.0"


def test_of_a_head_that_cannot_be_read_the_recipe_that_names_it_tells(site: Site) -> None:
    site.answers["/recipes.tar.gz"] = Raw(body=archive(**{"models/org/one.yaml": RECIPE}))
    assert "new head: org/One-DSpark (dspark for org/One)" in update(site).changed
    assert known_head("org/One-DSpark") == {
        "method": "dspark",
        "target": "org/One",
        "card_k": 7,
        "min_engine": "0.25.0",
    }


@pytest.mark.parametrize(
    "config",
    [
        {},
        [],
        {"architectures": "DFlash", "speculators_config": [1], "transformer_layer_config": 3},
        {**DFLASH, "target_model": "../../etc/passwd"},
        {**SPECULATOR, "speculators_config": {"verifier": {"name_or_path": "/models/mine"}}},
        {"architectures": ["MedusaModel"], "target_model": "Qwen/Qwen3-8B"},
    ],
)
def test_of_a_head_whose_config_tells_too_little_only_the_name_is_kept(site: Site, config: Any) -> None:
    listed(site, "z-lab/strange-DFlash", config)
    assert "new head: z-lab/strange-DFlash" in update(site).changed
    assert lookup.head("z-lab/strange-DFlash") is None
    assert catalog_status(_outside=Outside(today=lambda: TODAY)).heads == ("z-lab/strange-DFlash",)


@pytest.mark.parametrize(
    "body",
    [b"no archive", gzip.compress(b"no archive"), gzip.compress(b"x" * 2000)[:40]],
    ids=["no gzip", "no tar", "cut"],
)
def test_what_is_no_archive_of_recipes_is_named(site: Site, body: bytes) -> None:
    site.prices("us-east-1", **{"2xlarge": "4.1"})
    site.answers["/recipes.tar.gz"] = Raw(body=body)
    failed = [line for line in update(site).failed if line.startswith("heads in recipes of vLLM: ")]
    assert len(failed) == 1
    assert "no archive of recipes" in failed[0]


def test_further_publishers_are_asked(site: Site) -> None:
    for owner, part in (("thoughtworks", "Eagle3"), ("AngelSlim", "eagle3"), ("amd", "PARD")):
        site.answers[f"/api/models?author={owner}&search={part}&limit=200"] = [{"id": f"{owner}/x-{part}"}]
    site.answers["/api/models"] = []
    assert {f"new head: {name}" for name in ("thoughtworks/x-Eagle3", "AngelSlim/x-eagle3", "amd/x-PARD")} <= set(
        update(site).changed
    )


def test_a_head_has_the_commit_that_the_hub_says(site: Site) -> None:
    site.answers[f"/api/models/{REPO}"] = HUB_ANSWER
    lines = [line for line in update(site).changed if line.startswith(REPO)]
    assert lines == [
        f"{REPO}: revision unknown -> abc123",
        f"{REPO}: last_modified unknown -> 2026-05-01T10:00:00.000Z",
        f"{REPO}: gated False -> True",
    ]
    head = lookup.head(REPO)
    assert head
    assert (head.revision, head.gated, head.card_k) == ("abc123", True, 7)


def test_what_cannot_be_read_is_named_and_the_rest_is_kept(site: Site) -> None:
    site.prices("us-east-1", **{"2xlarge": "4.1"})
    found = update(site, "us-east-1", "eu-west-9")
    failed = [line.partition(": ")[0] for line in found.failed]
    assert failed == [
        "prices in eu-west-9",
        "heads on the hub",
        "new heads on the hub",
        "heads in recipes of vLLM",
        "images of AWS",
        "versions of vLLM",
    ]
    assert "eu-west-9/index.json answered 404 Not Found" in found.failed[0]
    assert list(catalog_status(_outside=Outside(today=lambda: TODAY)).read) == ["prices in us-east-1"]


def test_offline_is_an_error_of_the_outside_and_leaves_everything() -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("no route to host", request=request)

    with pytest.raises(PlatformError, match=r"nothing could be read\n  prices in us-east-1: .*no route to host"):
        catalog_update(
            _outside=Outside(today=lambda: TODAY, open_web=lambda: httpx.Client(transport=httpx.MockTransport(refuse)))
        )
    assert not updates.path().exists()


@pytest.mark.parametrize(
    "answer",
    [
        {},
        [],
        {"products": []},
        price_list(),
        {**price_list(**{"2xlarge": "4.1"}), "publicationDate": "soon"},
        price_list(**{"2xlarge": "four"}),
    ],
    ids=["empty", "no object", "no products", "no hosting of what is known", "no day", "no number"],
)
def test_a_price_list_of_another_shape_is_not_taken_for_no_prices(site: Site, answer: Any) -> None:
    site.answers[published.price_list_url("AmazonSageMaker", "us-east-1", "")] = answer
    site.answers["/simple/vllm/"] = {"versions": []}
    if answer == price_list():
        del answer["terms"]
    assert update(site).failed[0].startswith("prices in us-east-1: ")


def test_only_what_is_paid_by_the_hour_is_a_price_per_hour() -> None:
    """An upfront fee, or a price by the second, would be taken for one otherwise."""
    listed = price_list(**{"2xlarge": "4.1"})
    for terms in listed["terms"]["OnDemand"].values():
        for one in terms.values():
            fee = {"unit": "Quantity", "pricePerUnit": {"USD": "1000"}}
            one["priceDimensions"] |= {"upfront": fee, "second": {**fee, "unit": "Second"}}
    prices = published.price_list(json.dumps(listed).encode(), "AmazonSageMaker").prices
    assert prices["ml.g7e.2xlarge"] == 4.1


def test_a_damaged_file_of_the_user_is_named_with_the_way_out() -> None:
    updates.path().parent.mkdir(parents=True)
    for text in ('{"prices": 3}', "{", '{"heads": {"a/b": {"card_k": 9}}}', '{"prices": {"r": {"t": {"date": "x"}}}}'):
        updates.path().write_text(text)
        with pytest.raises(UsageError, match=r"update\.json is damaged: ") as raised:
            lookup.instances()
        assert "toolkit catalog update" in raised.value.hint


def test_the_files_age_is_told() -> None:
    ages = {
        file.name: (file.days, file.old)
        for file in catalog_status(_outside=Outside(today=lambda: date(2027, 3, 1))).files
    }
    assert ages["images.json"] == (99, True)
    assert not any(file.old for file in catalog_status(_outside=Outside(today=lambda: TODAY)).files)


def test_a_list_of_the_hub_goes_on_at_its_next_page(site: Site) -> None:
    """As the hub pages: the address of the next one stands in the header `Link`."""
    first = "/api/models?author=z-lab&search=DFlash&limit=200"
    later = f"{first}&cursor=eyJfaWQiOnt9"
    next_page = {"Link": f'<{site.url}{later}>; rel="next"', "Content-Type": "application/json; charset=utf-8"}
    site.answers["/api/models"] = []
    site.answers[first] = Raw(headers=next_page, body=b'[{"_id": "6", "id": "z-lab/one-DFlash", "downloads": 7}]')
    site.answers[later] = [{"id": "z-lab/two-DFlash"}]

    assert {"new head: z-lab/one-DFlash", "new head: z-lab/two-DFlash"} <= set(update(site).changed)


@pytest.mark.parametrize(
    ("silence", "hint"),
    [
        (httpx.ReadTimeout("timed out"), ""),
        (httpx.ConnectError("refused"), ""),
        (httpx.ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED] unknown"), "let SSL_CERT_FILE name a file"),
    ],
)
def test_a_host_that_does_not_answer_is_asked_once(silence: Exception, hint: str) -> None:
    """And not for each of a hundred heads, with as long a wait for every one."""
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.host)
        if request.url.host == "pypi.org":
            return httpx.Response(200, json={"versions": []})
        raise silence

    found = catalog_update(
        _outside=Outside(today=lambda: TODAY, open_web=lambda: httpx.Client(transport=httpx.MockTransport(answer)))
    )

    assert sorted(asked) == sorted({*asked})
    assert f"huggingface.co cannot be reached: {silence}" in "\n".join(found.failed)
    assert hint in "\n".join(found.failed)
    assert len(found.failed) == 5


def test_a_host_that_has_answered_is_asked_again_after_one_silence() -> None:
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.path)
        if len(asked) == 4:
            raise httpx.ReadTimeout("timed out")
        return httpx.Response(200, json=[])

    web = Outside(today=lambda: TODAY, open_web=lambda: httpx.Client(transport=httpx.MockTransport(answer)))
    catalog_update(_outside=web)
    assert len(asked) > 100


def test_a_list_that_names_itself_as_its_next_page_ends(site: Site) -> None:
    path = "/api/models?author=z-lab&search=DFlash&limit=200"
    site.answers["/api/models"] = []
    site.answers[path] = Raw(headers={"Link": f'<{site.url}{path}>; rel="next"'}, body=b'[{"id": "z-lab/one-DFlash"}]')
    assert "new head: z-lab/one-DFlash" in update(site).changed


def test_a_head_that_was_renamed_is_found_behind_the_redirect(site: Site) -> None:
    moved = Raw(status=307, headers={"Location": "/api/models/amazon/renamed", "ETag": 'W/"6e-abc"'})
    site.answers[f"/api/models/{REPO}"] = moved
    site.answers["/api/models/amazon/renamed"] = HUB_ANSWER
    assert f"{REPO}: revision unknown -> abc123" in update(site).changed


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (Raw(body=b'{"formatVersion": "v1.0", "prod', size=900), "peer closed connection"),
        (Raw(headers={"Content-Encoding": "gzip"}, body=gzip.compress(b"{}")), "the server packed it (gzip)"),
        (Raw(status=403, body=b"<Error><Code>AccessDenied</Code></Error>"), "answered 403 Forbidden"),
        (Raw(status=301, headers={"Location": LIST}), "redirect"),
        (Raw(body=b"<html>Sign in to the hotel's network</html>"), "index.json: "),
    ],
    ids=["broken off", "packed", "refused", "in a circle", "another page"],
)  # fmt: skip
def test_a_price_list_that_does_not_arrive_whole_changes_nothing(site: Site, answer: Raw, why: str) -> None:
    site.prices("us-east-1", **{"2xlarge": "4.1"})
    update(site, "us-east-1")
    site.answers[LIST] = answer
    site.answers["/simple/vllm/"] = {"versions": ["0.31.0"]}

    again = update(site, "us-east-1")

    (failed,) = [line for line in again.failed if line.startswith("prices in us-east-1: ")]
    assert why in failed
    instance = lookup.instance("ml.g7e.2xlarge")
    assert instance
    price = instance.price("us-east-1")
    assert price
    assert price.usd_per_hour == 4.1
