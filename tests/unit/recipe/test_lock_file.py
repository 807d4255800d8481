"""The lock file: both models' facts, the same everywhere."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from pairs import HIDDEN, HUB_RECIPE, VOCABULARY, edit_config, write_hub_pair, write_pair, write_recipe

from toolkit.api.checking import check
from toolkit.engines.arguments import left_out_notes
from toolkit.errors import ToolkitError
from toolkit.loading import load
from toolkit.recipe.facts import Lock, Tensor
from toolkit.recipe.lock import lock_path, pinned, read_lock, read_models, write_lock
from toolkit.recipe.model_files import FolderFiles, ModelFiles
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.source import ModelSource


def nowhere(source: ModelSource) -> ModelFiles:
    raise AssertionError(f"{source} is in a folder")


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    return load(write_pair(tmp_path))


def test_what_is_written_is_read_again(recipe: Recipe, tmp_path: Path) -> None:
    path = write_lock(recipe, read_models(recipe, nowhere))
    assert path == tmp_path / "recipe.lock.json"
    assert read_lock(path) == read_models(recipe, nowhere)
    assert json.loads(path.read_text()).keys() == {"target", "drafter"}, "digests only where there are any"


def test_digests_are_read_again_each_under_its_own_key(recipe: Recipe) -> None:
    image, wheel = f"sha256:{'a' * 64}", f"sha256:{'b' * 64}"
    lock = replace(read_models(recipe, nowhere), images={"vllm:1": image}, wheels={"orjson==3.11.5": wheel})
    assert read_lock(write_lock(recipe, lock)) == lock


def test_a_baseline_locks_its_target_only(recipe: Recipe) -> None:
    lock = read_lock(write_lock(recipe.baseline(), read_models(recipe.baseline(), nowhere)))
    assert lock
    assert lock.drafter is None


def test_a_lock_holds_what_the_checks_need_and_no_path_of_this_machine(recipe: Recipe, tmp_path: Path) -> None:
    lock = read_models(recipe, nowhere)
    assert lock.target.tensors == {"lm_head.weight": Tensor("BF16", (VOCABULARY, HIDDEN))}
    assert lock.target.tokenizer
    assert lock.target.tokenizer.size == VOCABULARY
    assert str(tmp_path) not in write_lock(recipe, read_models(recipe, nowhere)).read_text()


def test_a_lock_names_the_files_of_the_hub_that_are_staged(recipe: Recipe, tmp_path: Path) -> None:
    """A repository may hold the weights again in other formats: 196 GB for 65 in openai/gpt-oss-120b."""
    for name in ("pytorch_model.bin", ".gitattributes"):
        (tmp_path / "target" / name).write_bytes(b"")
    hub = replace(recipe, target=recipe.target.edit(model="org/target"), speculation=None)
    lock = read_models(hub, lambda source: FolderFiles(tmp_path / "target"))
    written = read_lock(write_lock(hub, replace(lock, target=replace(lock.target, revision="abc"))))
    assert pinned(hub, written).staged_files["org/target"] == (
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    )


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("org/target", "Of target.model these files are not copied, as the engine does not read them: {names}"),
        ("s3://ours/target", "s3://ours/target (target.model) is used where it is, with files that no engine reads"),
    ],
)
def test_a_lock_names_the_files_that_no_engine_reads(model: str, said: str, recipe: Recipe, tmp_path: Path) -> None:
    for name in ("model.py", "requirements.txt", "README.md"):
        (tmp_path / "target" / name).touch()
    elsewhere = replace(recipe, target=recipe.target.edit(model=model), speculation=None)
    written = read_lock(write_lock(elsewhere, read_models(elsewhere, lambda _: FolderFiles(tmp_path / "target"))))

    note = next(left_out_notes(pinned(elsewhere, written)))
    assert note.startswith(said.format(names="model.py, requirements.txt"))
    assert "model.py, requirements.txt" in note
    trusting = replace(elsewhere, engine=recipe.engine.edit(args={"trust-remote-code": True}))
    assert "model.py" not in next(left_out_notes(pinned(trusting, written)))


def test_there_may_be_no_lock(recipe: Recipe) -> None:
    assert read_lock(lock_path(recipe)) is None
    assert check(recipe).findings == ()


def test_a_fresh_lock_says_nothing(recipe: Recipe) -> None:
    write_lock(recipe, read_models(recipe, nowhere))
    assert check(recipe).findings == ()
    assert check(recipe.baseline()).findings == ()


def test_a_stale_lock_is_a_warning(recipe: Recipe, tmp_path: Path) -> None:
    write_lock(recipe, read_models(recipe, nowhere))
    edit_config(tmp_path / "drafter", ptd_token_id=5)
    report = check(recipe)
    assert report.ok
    (finding,) = report.findings
    assert (finding.code, finding.severity, finding.line) == ("lock.stale", "warning", 6)
    assert finding.hint == f"Run: toolkit lock {recipe.path}"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"target": {"tensors": []}, "drafter": null}', "\x00"])
def test_a_broken_lock_is_refused(recipe: Recipe, text: str) -> None:
    lock_path(recipe).write_text(text)
    with pytest.raises(ToolkitError, match="is not a lock file"):
        read_lock(lock_path(recipe))
    report = check(recipe)
    assert not report.ok
    assert [finding.code for finding in report.findings] == ["lock.unreadable"]


@pytest.mark.parametrize("shape", [(), (0,), (1, 1, 24)])
def test_a_tensor_is_written_in_a_form_that_reads_back(shape: tuple[int, ...]) -> None:
    assert Tensor.parse(str(Tensor("BF16", shape))) == Tensor("BF16", shape)


@pytest.mark.parametrize(
    ("revision", "planned"),
    [(None, "0" * 40), ("main", "0" * 40), ("1" * 7, "0" * 40), ("1" * 40, "1" * 40)],
    ids=["none", "branch", "tag that could be half a commit", "commit"],
)
def test_what_is_deployed_is_the_locks_commit_unless_the_recipe_names_one(
    tmp_path: Path, revision: str | None, planned: str
) -> None:
    recipe = load(write_hub_pair(tmp_path, target={"revision": "0" * 40}))
    wanted = replace(recipe, target=recipe.target.edit(revision=revision))
    assert pinned(wanted, read_lock(lock_path(recipe))).target.revision == planned


@pytest.mark.parametrize(("branch", "planned"), [("main", "0" * 40), ("v2", "v2")])
def test_a_lock_of_another_branch_pins_nothing(tmp_path: Path, branch: str, planned: str) -> None:
    """The recipe was changed to a branch that the lock has not read: its commit has other weights."""
    recipe = load(write_hub_pair(tmp_path, target={"revision": "0" * 40, "wanted": "main"}))
    changed = replace(recipe, target=recipe.target.edit(revision=branch))
    assert pinned(changed, read_lock(lock_path(recipe))).target.revision == planned


@pytest.mark.parametrize(
    ("weight_bytes", "download", "start"),
    [(0, 300, 600), (140_000_000_000, 1000, 880), (5_000_000_000_000, 3600, 3600)],
    ids=["none", "70 billion parameters", "more than SageMaker waits for"],
)
def test_time_outs_grow_with_the_weights_up_to_sagemakers_hour(
    recipe: Recipe, weight_bytes: int, download: int, start: int
) -> None:
    facts = read_models(recipe.baseline(), nowhere).target
    sized = pinned(recipe.baseline(), Lock(replace(facts, weight_bytes=weight_bytes)))
    assert (sized.download_timeout, sized.platform.health_check_timeout) == (download, start)


@pytest.mark.parametrize(
    ("more", "start"),
    [
        ("weights: s3", 600 + 280),
        ("weights: hub", 600 + 280 + 700),  # it is fetched at 0.2 GB/s before it is loaded at 0.5
        ("weights: hub, health_check_timeout: 1234", 1234),
    ],
)
def test_a_container_has_time_to_fetch_and_to_load_unless_the_recipe_says_how_long(
    tmp_path: Path, more: str, start: int
) -> None:
    written = HUB_RECIPE.replace("health_check_timeout: 600", more)
    recipe = load(write_hub_pair(tmp_path, written, target={"weight_bytes": 140_000_000_000})).baseline()
    lock = read_lock(lock_path(recipe))
    assert lock
    assert pinned(recipe, replace(lock, drafter=None)).platform.health_check_timeout == start


@pytest.mark.parametrize(("when", "start"), [("ahead", 600), ("at-start", 3600)])
def test_a_container_that_compiles_as_it_starts_has_all_the_time_there_is(
    tmp_path: Path, when: str, start: int
) -> None:
    engine = f"engine: {{name: neuron, compile: {when}, max_model_len: 1024}}"
    recipe = load(write_recipe(tmp_path, TRAINIUM.format(engine=engine)))
    assert pinned(recipe, None).platform.health_check_timeout == start


TRAINIUM = """\
name: trn
target: {{model: org/target}}
speculation: {{method: draft-model, model: org/drafter}}
{engine}
platform: {{name: sagemaker, instance_types: [ml.trn2.48xlarge]}}
"""
