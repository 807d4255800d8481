"""What comes from elsewhere is pinned: by the lock's commits and digests, and a plan says what is not."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hub import COMMIT, hub
from pairs import write_hub_pair
from scripted_http import Reply, scripted

import toolkit
from toolkit.api.checking import check
from toolkit.api.context import find_unpinned, pin_by_lock
from toolkit.api.lock import lock
from toolkit.api.outside import Outside
from toolkit.errors import BuildError, UnreadableModel, UsageError
from toolkit.loading import load, on_platform
from toolkit.planning.resources import Account
from toolkit.platforms.elsewhere import find_digest
from toolkit.platforms.image import base_image, render
from toolkit.platforms.kubernetes.rules import RULES as KUBERNETES
from toolkit.recipe.hub import HubFiles, hub_client
from toolkit.recipe.lock import OpenFiles, lock_path, read_lock
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.schema import ContainerSection

DIGEST = "sha256:" + "d" * 64
AWS = Account("123456789012", "us-west-2")


def digests(image: str) -> str:
    return DIGEST


def offline(image: str) -> str:
    raise BuildError("no answer")


@pytest.fixture
def files(tmp_path: Path) -> Iterator[OpenFiles]:
    """The hub, which holds the pair of the recipe."""
    folders = {"org/target": tmp_path / "target", "org/drafter": tmp_path / "drafter"}
    with hub(folders) as server, hub_client(server.url) as client:
        yield lambda source: HubFiles(source.model, source.revision, client)


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    return load(write_hub_pair(tmp_path))


def test_a_lock_pins_commits_of_both_models_and_the_digest_of_the_image(recipe: Recipe, files: OpenFiles) -> None:
    made = lock(recipe, _outside=Outside(files, digests))
    assert list(made.pinned.values()) == [COMMIT, COMMIT, DIGEST]
    assert made.unpinned == ()
    assert list(find_unpinned(pin_by_lock(recipe, AWS), AWS)) == []


def test_what_is_deployed_is_what_the_lock_pins(recipe: Recipe, files: OpenFiles) -> None:
    lock(recipe, _outside=Outside(files, digests))
    plan = toolkit.plan(recipe.path)
    (model,) = [action.request for action in plan.actions if action.kind == "Model"]
    assert model["PrimaryContainer"]["Image"].endswith(f"/vllm@{DIGEST}")
    revisions = {action.request["Revision"] for action in plan.actions if action.kind == "Weights"}
    assert revisions == {COMMIT}
    assert plan.unpinned == ()


def test_a_cluster_runs_the_digest_and_the_commits_too(tmp_path: Path, files: OpenFiles) -> None:
    recipe = on_platform(load(write_hub_pair(tmp_path)), "kubernetes")
    lock(recipe, _outside=Outside(files, digests))
    complete = pin_by_lock(recipe, AWS)
    text = json.dumps([item.request for item in KUBERNETES.desired([complete], AWS)])
    assert f"@{DIGEST}" in text
    assert base_image(recipe, AWS) not in text
    assert text.count(COMMIT) >= 2


def test_a_plan_says_what_is_not_pinned_and_the_command_that_pins_it(tmp_path: Path) -> None:
    path = write_hub_pair(tmp_path, target={"revision": ""}, drafter={"revision": ""})
    target, drafter, image = toolkit.plan(path).to_dict()["unpinned"]
    assert target.startswith("target.model org/target: no commit is known")
    assert drafter.startswith("speculation.model org/drafter: no commit is known, and `main` may move")
    assert image.startswith("image ")
    assert all(line.endswith(f"Pin it: toolkit lock {path}") for line in (target, drafter, image))
    assert f"Not pinned: {target}" in str(toolkit.plan(path))


@pytest.mark.parametrize("source", ["s3://bucket/target/", "jumpstart:some-model"])
def test_what_nothing_pins_is_said_with_what_can_be_pinned(recipe: Recipe, source: str) -> None:
    moved = replace(recipe, target=recipe.target.edit(model=source))
    assert any("to have it pinned" in line for line in find_unpinned(moved, AWS) if source in line)


def test_a_lock_without_the_registry_says_what_it_could_not_pin(recipe: Recipe, files: OpenFiles) -> None:
    made = lock(recipe, _outside=Outside(files, offline))
    (line,) = made.unpinned
    assert line.startswith("image ")
    assert line.endswith("no answer")
    assert COMMIT in lock_path(recipe).read_text()


def test_without_the_registry_a_digest_that_was_known_stays(recipe: Recipe, files: OpenFiles) -> None:
    lock(recipe, _outside=Outside(files, digests))
    made = lock(recipe, _outside=Outside(files, offline))
    assert made.unpinned[0].endswith("it keeps the digest it had")
    known = read_lock(lock_path(recipe))
    assert known
    assert list(known.images.values()) == [DIGEST]


def test_a_lock_without_the_hub_names_both_models_and_changes_nothing(recipe: Recipe) -> None:
    before = lock_path(recipe).read_bytes()
    with hub({}) as server, hub_client(server.url) as client, pytest.raises(UnreadableModel) as caught:
        lock(recipe, _outside=Outside(lambda source: HubFiles(source.model, source.revision, client), digests))
    assert "target.model" in caught.value.message
    assert "speculation.model" in caught.value.message
    assert lock_path(recipe).read_bytes() == before


def test_a_lock_pins_the_hash_of_each_package_and_the_image_is_built_with_it(recipe: Recipe, files: OpenFiles) -> None:
    section = ContainerSection(base="registry.example/vllm@" + DIGEST, wheels=["orjson==3.11.5"])
    mine = replace(recipe, container=section)
    assert any(
        "orjson==3.11.5: a version without its hash" in text for text in find_unpinned(pin_by_lock(mine, AWS), AWS)
    )
    made = lock(mine, _outside=Outside(files, digests, lambda pin, python: f"sha256:{'a' * 64}"))
    assert made.pinned["container.wheels orjson==3.11.5"] == f"sha256:{'a' * 64}"
    assert list(find_unpinned(pin_by_lock(mine, AWS), AWS)) == []
    assert render(pin_by_lock(mine, AWS), AWS).wheels == (f"orjson==3.11.5 --hash=sha256:{'a' * 64}",)


def test_a_lock_of_another_version_s_image_is_refused(recipe: Recipe, files: OpenFiles) -> None:
    lock(recipe, _outside=Outside(files, digests))
    path = lock_path(recipe)
    (image,) = json.loads(path.read_text())["images"]
    path.write_text(path.read_text().replace(image, image.rpartition(":")[0] + ":an-older-tag"))
    with pytest.raises(UsageError, match="an-older-tag, and the recipe runs") as caught:
        toolkit.plan(recipe.path)
    assert caught.value.hint == f"Take it up: toolkit lock {recipe.path}"
    lock(recipe, _outside=Outside(files, digests))
    assert "an-older-tag" not in path.read_text()


@pytest.mark.parametrize("digest", ["latest", "sha256:abc", "", DIGEST + "\n", "sha256:" + "D" * 64, 5, None])
def test_a_lock_with_something_else_than_a_digest_is_refused(recipe: Recipe, digest: object) -> None:
    path = lock_path(recipe)
    path.write_text(json.dumps({**json.loads(path.read_text()), "images": {"registry/repository:tag": digest}}))
    assert "lock.unreadable" in [finding.code for finding in check(recipe).errors]


def test_any_registry_is_asked_through_its_own_api() -> None:
    manifest = b'{"schemaVersion": 2}'
    headers = {"Content-Type": "application/vnd.oci.image.manifest.v1+json"}
    with scripted(Reply(200, (manifest,), headers)) as server:
        found = find_digest(f"{server.url.removeprefix('http://')}/engines/vllm:0.32.0")
    assert found == f"sha256:{hashlib.sha256(manifest).hexdigest()}"


def test_a_registry_without_the_image_is_an_error_of_its_name() -> None:
    with scripted(Reply(404)) as server, pytest.raises(BuildError, match=r"has no image .*/engines/vllm:0\.32\.0"):
        find_digest(f"{server.url.removeprefix('http://')}/engines/vllm:0.32.0")


def test_ecr_without_credentials_is_an_error_that_says_what_it_takes() -> None:
    with pytest.raises(BuildError) as caught:
        find_digest("763104351884.dkr.ecr.us-west-2.amazonaws.com/vllm:0.30.0")
    assert caught.value.hint == "It takes AWS credentials, and ecr:BatchGetImage."
