"""Facts of a model, read from wherever its files are, and no more bytes of them than needed."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import httpx
import pytest
from hub import COMMIT, TOKEN, hub
from pairs import edit_tensors, write_hub_pair, write_pair, write_tokenizer

from toolkit.api.checking import check
from toolkit.api.lock import lock
from toolkit.api.outside import Outside
from toolkit.errors import UnreadableModel
from toolkit.loading import load
from toolkit.recipe.facts import ModelFacts, Tensor, merge_tensors
from toolkit.recipe.hub import HubFiles, hub_client
from toolkit.recipe.lock import read_lock, read_models, write_lock
from toolkit.recipe.model_files import read_folder, read_model


@pytest.fixture
def target(tmp_path: Path) -> Path:
    write_pair(tmp_path)
    return tmp_path / "target"


def read(repo: str, url: str, revision: str | None = None) -> ModelFacts:
    with hub_client(url) as client:
        return read_model(HubFiles(repo, revision, client), repo)


def test_a_model_of_the_hub_is_read_like_a_folder_and_pinned(target: Path) -> None:
    with hub({"org/target": target}) as server:
        facts = read("org/target", server.url)

    folder = read_folder(target)
    assert (facts.config, facts.tensors, facts.tokenizer) == (folder.config, folder.tensors, folder.tokenizer)
    assert (facts.model, facts.revision, facts.source) == ("org/target", COMMIT, "Hugging Face hub, org/target")


def test_weights_are_never_fetched(target: Path) -> None:
    edit_tensors(target, {"model.layers.0.mlp.weight": (1000, 1000)})
    with hub({"org/target": target}) as server:
        facts = read("org/target", server.url)

    assert facts.weight_bytes == (target / "model.safetensors").stat().st_size > 2_000_000
    assert server.sent["model.safetensors"] == 100_000


def test_a_header_longer_than_the_first_request_is_read_on(target: Path) -> None:
    names = {f"model.layers.{layer}.{'x' * 50}{layer}.weight": (1,) for layer in range(2000)}
    edit_tensors(target, dict(names))
    with hub({"org/target": target}) as server:
        facts = read("org/target", server.url)

    assert facts.tensors == read_folder(target).tensors
    assert len(facts.tensors or ()) == 2001


@pytest.mark.parametrize("length", [100_000 - 9, 100_000 - 8, 100_000 - 7, 100_001])
def test_a_header_may_be_longer_than_the_first_bytes_that_are_read(target: Path, length: int) -> None:
    file = target / "model.safetensors"
    known, data = read_folder(target), file.read_bytes()
    (old,) = struct.unpack("<Q", data[:8])
    padded = data[8 : 7 + old] + b" " * (length - old) + b"}"
    file.write_bytes(struct.pack("<Q", length) + padded + data[8 + old :])
    assert read_folder(target).tensors == known.tensors


def test_a_gated_model_needs_the_users_token(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with hub({"org/target": target}, gated={"org/target"}) as server:
        with pytest.raises(UnreadableModel, match="answered 401") as refused:
            read("org/target", server.url)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        facts = read("org/target", server.url)

    assert "hf auth login" in refused.value.hint
    assert TOKEN not in json.dumps(facts.to_dict())


@pytest.mark.parametrize(("repo", "revision"), [("org/other", None), ("org/target", "nope")])
def test_a_model_or_revision_that_is_not_there(target: Path, repo: str, revision: str | None) -> None:
    with hub({"org/target": target}) as server, pytest.raises(UnreadableModel, match="answered 404") as missing:
        read(repo, server.url, revision)
    assert "leading `./`" in missing.value.hint


def test_without_a_network_the_error_says_so(target: Path) -> None:
    with hub({}) as server:
        url = server.url
    with pytest.raises(UnreadableModel, match="cannot be read from the hub") as error:
        read("org/target", url)
    assert isinstance(error.value.__cause__, httpx.ConnectError)


def test_something_else_than_a_hub_answers(target: Path) -> None:
    (target / "config.json").write_text("<html>")
    with hub({"org/target": target}) as server, pytest.raises(UnreadableModel, match=r"cannot read .*config\.json"):
        read("org/target", server.url)


def test_locking_a_recipe_of_the_hub_makes_it_checkable(tmp_path: Path) -> None:
    recipe = write_hub_pair(tmp_path)
    recipe.with_suffix(".lock.json").unlink()
    folders = {"org/target": tmp_path / "target", "org/drafter": tmp_path / "drafter"}
    with hub(folders) as server, hub_client(server.url) as client:
        loaded = load(recipe)
        path = write_lock(loaded, read_models(loaded, lambda source: HubFiles(source.model, source.revision, client)))

    lock = read_lock(path)
    assert lock
    assert lock.drafter
    assert [lock.target.revision, lock.drafter.revision] == [COMMIT, COMMIT]
    assert [lock.target.wanted, lock.drafter.wanted] == ["main", "main"]
    assert check(recipe).findings == ()


def test_a_lock_that_cannot_be_made_leaves_the_old_one(tmp_path: Path) -> None:
    recipe = write_hub_pair(tmp_path)
    before = recipe.with_suffix(".lock.json").read_text()
    with (
        hub({"org/target": tmp_path / "target"}) as server,
        hub_client(server.url) as client,
        pytest.raises(UnreadableModel, match="org/drafter@main"),
    ):
        lock(load(recipe), _outside=Outside(lambda source: HubFiles(source.model, source.revision, client)))
    assert recipe.with_suffix(".lock.json").read_text() == before
    assert not list(tmp_path.glob(".*"))


def test_tensors_that_differ_in_their_indices_only_are_merged() -> None:
    alike = {f"layers.{layer}.experts.{expert}.w": Tensor("BF16", (2, 3)) for layer in range(3) for expert in (0, 1, 5)}
    assert merge_tensors({**alike, "norm.weight": Tensor("F32", (3,))}) == {
        "layers.{0-2}.experts.{0-1,5}.w": Tensor("BF16", (2, 3), count=9),
        "norm.weight": Tensor("F32", (3,)),
    }


def test_tensors_that_form_no_grid_stay_apart() -> None:
    ragged = {"a.0.b.0.w": Tensor("BF16", (1,)), "a.0.b.1.w": Tensor("BF16", (1,)), "a.1.b.0.w": Tensor("BF16", (1,))}
    assert merge_tensors(ragged) == ragged
    first = {"layers.0.q.w": Tensor("BF16", (4,)), "layers.1.q.w": Tensor("BF16", (2,))}
    assert merge_tensors(first) == first


@pytest.mark.parametrize(
    ("added", "special"),
    [([], {}), ([{"content": "<|end|>", "id": 40, "special": True}], {"<|end|>": 40})],
)
def test_a_tokenizer_has_its_special_tokens(target: Path, added: list[object], special: dict[str, int]) -> None:
    write_tokenizer(target)
    tokenizer = json.loads((target / "tokenizer.json").read_text())
    (target / "tokenizer.json").write_text(json.dumps({**tokenizer, "added_tokens": added}))
    facts = read_folder(target).tokenizer
    assert facts
    assert facts.special_tokens == special
    assert facts.size == 32 + len(added)


def test_a_unigram_vocabulary_is_a_list(target: Path) -> None:
    (target / "tokenizer.json").write_text(json.dumps({"model": {"vocab": [["a", -1.0], ["b", -2.0]]}}))
    facts = read_folder(target).tokenizer
    assert facts
    assert facts.size == 2


def test_weights_in_another_format_have_a_size_only(target: Path) -> None:
    (target / "model.safetensors").rename(target / "pytorch_model.bin")
    facts = read_folder(target)
    assert facts.tensors is None
    assert facts.weight_bytes


def test_an_embedding_model_is_told_whatever_its_architecture_is_called(target: Path) -> None:
    """As Qwen3-Embedding, whose config.json says Qwen3ForCausalLM."""
    modules = [{"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}]
    (target / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(UnreadableModel, match=r"is an embedding model \(its modules.json pools\)"):
        read_folder(target)


def test_an_adapter_and_gguf_are_told_for_what_they_are(target: Path) -> None:
    (target / "model.safetensors").rename(target / "model-Q4_K_M.gguf")
    with pytest.raises(UnreadableModel, match="has its weights as GGUF alone") as refused:
        read_folder(target)
    assert refused.value.hint.startswith("Take the model that it was made from")

    (target / "config.json").unlink()
    (target / "adapter_config.json").write_text('{"base_model_name_or_path": "Qwen/Qwen3-8B"}')
    with hub({"org/adapter": target}) as server, pytest.raises(UnreadableModel, match="is an adapter") as refused:
        read("org/adapter", server.url)
    assert refused.value.hint.startswith("Merge it with Qwen/Qwen3-8B")
