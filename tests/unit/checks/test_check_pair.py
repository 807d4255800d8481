"""Does the drafter fit the target? Every way in which it may not, before anything starts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pairs import HIDDEN, METHODS, VOCABULARY, edit_config, edit_tensors, write_pair, write_tokenizer

from toolkit.api.checking import check
from toolkit.checks.run import require
from toolkit.errors import RecipeError
from toolkit.loading import load

Edit = Callable[[Path], None]


def config(**changes: object) -> Edit:
    return lambda root: edit_config(root / "drafter", **changes)


def tensors(**changes: tuple[int, ...] | None) -> Edit:
    return lambda root: edit_tensors(root / "drafter", {name.replace("__", "."): to for name, to in changes.items()})


def target(**changes: object) -> Edit:
    return lambda root: edit_config(root / "target", **changes)


def other_tokenizer(root: Path) -> None:
    write_tokenizer(root / "drafter", first_token="another")


def same_tokenizer(root: Path) -> None:
    write_tokenizer(root / "drafter")


def text_config_one_level_down(root: Path) -> None:
    nested = {"hidden_size": HIDDEN, "vocab_size": VOCABULARY}
    edit_config(root / "target", hidden_size=None, vocab_size=None, text_config=nested)


@pytest.mark.parametrize("method", METHODS)
def test_a_pair_that_fits_has_no_findings(tmp_path: Path, method: str) -> None:
    assert check(write_pair(tmp_path, method)).findings == ()


@pytest.mark.parametrize(
    ("method", "edit"),
    [
        ("p-eagle", config(ptd_token_id=None, pard_token=0)),
        ("p-eagle", config(ptd_token_id=None, mask_token_id=31)),
        ("p-eagle", config(ptd_token_id=None, dflash_config={"mask_token_id": 5})),
        ("p-eagle", config(target_hidden_size=None)),
        ("p-eagle", config(num_aux_hidden_states=None)),
        ("p-eagle", config(num_depths=7)),
        ("p-eagle", text_config_one_level_down),
        ("p-eagle", tensors(lm_head__weight=None)),
        ("eagle3", tensors(d2t=(16,), lm_head__weight=(16, HIDDEN))),
        ("draft-model", same_tokenizer),
    ],
)
def test_what_else_fits(tmp_path: Path, method: str, edit: Edit) -> None:
    recipe = write_pair(tmp_path, method)
    edit(tmp_path)
    if method == "eagle3":
        edit_config(tmp_path / "drafter", draft_vocab_size=16)
    assert check(recipe).findings == ()


@pytest.mark.parametrize(
    ("method", "edit", "code", "message", "hint"),
    [
        ("p-eagle", config(target_hidden_size=16), "hidden-size", "with hidden size 16, and this target has 8",
         "trained for this target"),
        ("p-eagle", target(hidden_size=16), "hidden-size", "and this target has 16", "trained for this target"),
        ("eagle3", tensors(fc__weight=(8, 16)), "fc-width", "`fc.weight` is BF16 8x16; it must take 24",
         "EAGLE-3 style"),
        ("eagle3", tensors(fc__weight=None), "fc-width", "`fc.weight` is missing", "EAGLE-3 style head"),
        ("eagle3", tensors(fc__weight=()), "fc-width", "it must take 24 values", "EAGLE-3 style head"),
        ("eagle3", config(num_aux_hidden_states=2), "fc-width", "it must take 16 values", "EAGLE-3 style head"),
        ("p-eagle", config(vocab_size=64), "vocab-size",
         "the head has 64 tokens in its vocabulary, the target 32", "trained"),
        ("draft-model", config(vocab_size=64), "vocab-size", "has 64 tokens in its vocabulary", "same family"),
        ("pard", config(vocab_size=64), "vocab-size", "draft model has 64 tokens in its vocabulary", "same family"),
        ("eagle3", tensors(lm_head__weight=(16, 8)), "draft-vocab-size", "is BF16 16x8, but", "`draft_vocab_size`"),
        ("eagle3", config(draft_vocab_size=16), "draft-vocab-size", "drafts from 16 tokens", "`draft_vocab_size`"),
        ("eagle3", tensors(model__norm=(8,)), "tensor-prefix", "1 tensors start with `model.` (`model.norm`)",
         "Remove the prefix"),
        ("p-eagle", tensors(mask_hidden=None), "mask-hidden", "no `mask_hidden`",
         "P-EAGLE head, or set `method: eagle3`"),
        ("p-eagle", tensors(mask_hidden=(1, 1, 8)), "mask-hidden", "has 8 values, but needs 24",
         "trained for this target"),
        ("p-eagle", tensors(mask_hidden=(1, 1, 32)), "mask-hidden", "has 32 values, but needs 24",
         "trained for this target"),
        ("p-eagle", config(ptd_token_id=None), "mask-token", "names no mask token",
         "Add `pard_token` and"),
        ("pard", config(pard_token=None), "mask-token", "names no mask token",
         "the id that the drafter was trained with"),
        ("p-eagle", config(ptd_token_id=32), "mask-token",
         "32 (`ptd_token_id`) is outside the vocabulary of 32", "Correct"),
        ("p-eagle", config(ptd_token_id=-1), "mask-token", "-1 (`ptd_token_id`) is outside", "Correct"),
        ("draft-model", other_tokenizer, "tokenizer", "give different token ids", "target's tokenizer"),
    ],
)  # fmt: skip
def test_a_pair_that_does_not_fit(tmp_path: Path, method: str, edit: Edit, code: str, message: str, hint: str) -> None:
    recipe = write_pair(tmp_path, method)
    edit(tmp_path)
    finding = check(recipe).findings[0]
    assert (finding.code, finding.severity) == (f"pair.{code}", "error")
    assert (finding.path, finding.line) == ("speculation.model", 6)
    assert message in finding.message
    assert hint in finding.hint


def test_a_smaller_draft_vocabulary_needs_a_map(tmp_path: Path) -> None:
    recipe = write_pair(tmp_path, "eagle3")
    edit_config(tmp_path / "drafter", draft_vocab_size=16)
    edit_tensors(tmp_path / "drafter", {"lm_head.weight": (16, HIDDEN)})
    (finding,) = check(recipe).findings
    assert finding.code == "pair.d2t"
    assert "drafts from 16 of 32 tokens but has no `d2t`" in finding.message


def test_a_map_of_the_whole_vocabulary_is_too_much_from_vllm_0_30_on(tmp_path: Path) -> None:
    recipe = write_pair(tmp_path)
    edit_tensors(tmp_path / "drafter", {"d2t": (VOCABULARY,), "t2d": (VOCABULARY,)})
    (finding,) = check(recipe).findings
    assert (finding.code, finding.severity, finding.line) == ("pair.d2t", "error", 6)
    assert "drafts from all 32 tokens, and vllm 0.32.0 then refuses a `d2t`" in finding.message
    assert "`version` before 0.30.0" in finding.hint
    assert "toolkit convert drafter" in finding.hint
    recipe.write_text(recipe.read_text().replace("0.32.0", "0.29.0"))
    assert not [finding for finding in check(recipe).findings if finding.code == "pair.d2t"]


def test_vllm_does_not_count_layer_ids_at_the_top_of_the_config(tmp_path: Path) -> None:
    """It takes three layers then (llama_eagle3.py), and a head of two does not load."""
    recipe = write_pair(tmp_path, "eagle3")
    edit_config(tmp_path / "drafter", num_aux_hidden_states=None, eagle_aux_hidden_state_layer_ids=[1, 2])
    edit_tensors(tmp_path / "drafter", {"fc.weight": (HIDDEN, 2 * HIDDEN)})
    assert [finding.code for finding in check(recipe).findings] == ["pair.fc-width"]
    edit_config(tmp_path / "drafter", eagle_config={"eagle_aux_hidden_state_layer_ids": [1, 2]})
    assert check(recipe).findings == ()


def test_more_draft_tokens_than_the_head_was_trained_for_is_a_warning(tmp_path: Path) -> None:
    recipe = write_pair(tmp_path)
    edit_config(tmp_path / "drafter", num_depths=4)
    report = check(recipe)
    assert report.ok
    (finding,) = report.findings
    assert (finding.code, finding.severity, finding.line) == ("pair.trained-depth", "warning", 7)
    assert finding.hint == "Set it to 4 or less."


def test_several_faults_of_a_head_are_told_at_once(tmp_path: Path) -> None:
    recipe = write_pair(tmp_path)
    edit_config(tmp_path / "drafter", ptd_token_id=None, vocab_size=64)
    edit_tensors(tmp_path / "drafter", {"mask_hidden": None, "fc.weight": None})
    found = {finding.code for finding in check(recipe).findings}
    assert found == {"pair.mask-token", "pair.vocab-size", "pair.mask-hidden", "pair.fc-width"}


@pytest.mark.parametrize(
    "edit",
    [config(ptd_token_id=None), tensors(mask_hidden=None), config(target_hidden_size=16), config(vocab_size=64)],
    ids=["no mask token", "no mask_hidden", "another hidden size", "another vocabulary"],
)
def test_a_broken_head_is_refused_before_anything_starts(tmp_path: Path, edit: Edit) -> None:
    recipe = write_pair(tmp_path)
    edit(tmp_path)
    with pytest.raises(RecipeError, match=r"recipe\.yaml:6 speculation\.model: "):
        require(load(recipe))


def test_a_baseline_does_not_care_for_the_drafter(tmp_path: Path) -> None:
    recipe = load(write_pair(tmp_path))
    (tmp_path / "drafter" / "config.json").unlink()
    assert check(recipe.baseline()).ok


@pytest.mark.parametrize(("last", "codes"), [(4, []), (5, ["pair.aux-layers"]), (-1, ["pair.aux-layers"])])
def test_a_head_may_read_what_comes_out_of_the_last_layer(tmp_path: Path, last: int, codes: list[str]) -> None:
    recipe = write_pair(tmp_path, "eagle3")
    edit_config(tmp_path / "drafter", eagle_aux_hidden_state_layer_ids=[1, 2, last])
    assert [finding.code for finding in check(recipe).findings] == codes


@pytest.mark.parametrize(("positions", "is_found"), [(1023, True), (1024, False)])
def test_a_head_has_to_know_all_positions_of_a_request_before_vllm_0_27(
    tmp_path: Path, positions: int, is_found: bool
) -> None:
    recipe = write_pair(tmp_path, "eagle3")
    recipe.write_text(recipe.read_text().replace("0.32.0", "0.26.0"))
    edit_config(tmp_path / "drafter", max_position_embeddings=positions)
    assert ("pair.positions" in [finding.code for finding in check(recipe).findings]) is is_found
