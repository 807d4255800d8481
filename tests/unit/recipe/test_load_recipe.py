"""Reading a recipe file: every problem at once, each with its line, its key and the edit that helps."""

from __future__ import annotations

from pathlib import Path

import pytest
from pairs import RECIPE, write_recipe

from toolkit.errors import RecipeError, RecipeNotFound, UnreadableRecipe
from toolkit.findings import Finding
from toolkit.loading import load, read
from toolkit.recipe.known import catalogue
from toolkit.recipe.load import find


def findings(folder: Path, text: str) -> tuple[Finding, ...]:
    with pytest.raises(RecipeError) as caught:
        read(write_recipe(folder, text))
    return caught.value.findings


def test_a_good_file_is_read_with_the_line_of_every_key(tmp_path: Path) -> None:
    loaded = read(write_recipe(tmp_path, RECIPE))
    assert loaded.file.name == "tiny"
    assert loaded.file.engine.args == {"dtype": "float32", "enforce-eager": True}
    assert loaded.lines["speculation.num_speculative_tokens"] == 7
    assert loaded.lines["engine.args.enforce-eager"] == 16
    assert loaded.lines["engine.env.HF_HUB_OFFLINE"] == 17


@pytest.mark.parametrize(
    ("old", "new", "code", "line", "path", "message", "hint"),
    [
        # key by key: what is written, and what the user is told
        ("args:", "arg:", "unknown-key", 14, "engine.arg", "there is no key `arg`",
         "Did you mean `args`? Allowed: name, "),
        ("name: tiny", "name: tiny\nzzz: 1", "unknown-key", 2, "zzz", "there is no key `zzz`",
         "Allowed: name, description, "),
        ("{name: local}", "{name: local}\nname.x: 1", "unknown-key", 19, "name.x", "`name.x`", "Did you mean `name`?"),
        ("{name: local}", "{name: local}\nname: b", "duplicate-key", 19, "name", "first in line 1",
         "Keep one of the two."),
        ("platform: {name: local}", "", "missing-key", None, "platform", "`platform` is missing",
         "Add `platform: {name: local}`."),
        ("0.32.0", "0.32", "bad-value", 10, "engine.version", "text is expected, not 0.32",
         "Write `version: 0.32.0`. Engine version, three"),
        ("0.32.0", '"0.32"', "bad-value", 10, "engine.version", "`0.32` is not allowed",
         "Engine version, three numbers"),
        ("0.32.0", "[0]", "bad-value", 10, "engine.version", "text is expected, not a list", "Engine version"),
        ("name: tiny", "name: my_name", "bad-value", 1, "name", "`my_name` is not allowed",
         "letters, digits and single"),
        ("name: tiny", 'name: "tiny\\n"', "bad-value", 1, "name", "is not allowed", "letters, digits"),
        ("name: tiny", f"name: {'a' * 45}", "bad-value", 1, "name", "at most 44 characters", "Name of the endpoint"),
        ("name: tiny", "name: x-baseline", "bad-value", 1, "name", "names that end in `-baseline`", "Name of"),
        ("a pair of a few kB", "true", "bad-value", 2, "description", "text is expected, not true", '"true"'),
        ("{model: ./target}", "org/model", "bad-value", 3, "target", 'a mapping is expected, not "org/model"', "model"),
        ("{model: ./target}", "", "bad-value", 3, "target", "a mapping is expected, not empty", "Its keys: model"),
        ("method: p-eagle", "method: peagle", "bad-value", 5, "speculation.method", "`peagle`",
         "Did you mean `p-eagle`?"),
        ("{name: local}", "{name: local}\ncontainer: vllm/vllm-openai:v0.31.0", "bad-value", 19, "container",
         "`vllm/vllm-openai:v0.31.0` is not allowed", "Write `container: {base: vllm/vllm-openai:v0.31.0}`."),
        ("{name: local}", "{name: local}\ncontainer: costum", "bad-value", 19, "container", "`costum` is not allowed",
         "Did you mean `custom`?"),
        ("{name: local}", "{name: local}\ncontainer: {bas: x}", "unknown-key", 19, "container.bas", "no key `bas`",
         "Did you mean `base`?"),
        ("{name: local}", "{name: local, instance_types: [{type: ml.g6.xlarge, arg: {}}]}", "unknown-key", 18,
         "platform.instance_types.0.arg", "no key `arg`", "Did you mean `args`?"),
        ("method: p-eagle", "method: none", "bad-value", 4, "speculation", "method `none` drafts nothing", ""),
        ("  model: ./drafter\n", "", "bad-value", 4, "speculation", "`p-eagle` needs a drafter: add `model:", ""),
        ("tokens: 7", "tokens: 0", "bad-value", 7, "speculation.num_speculative_tokens", "greater than 0", "K, draft"),
        ("tokens: 7", "tokens: 1.5", "bad-value", 7, "speculation.num_speculative_tokens", "not 1.5", "K, draft"),
        ("tokens: 7", 'tokens: "7"', "bad-value", 7, "speculation.num_speculative_tokens", 'not "7"', "K, draft"),
        ("dtype: float32", "--dtype: float32", "bad-value", 15, "engine.args.--dtype", "not allowed", "leading dashes"),
        ("dtype: float32", "enforce_eager: 1", "bad-value", 14, "engine.args", "`enforce-eager` is given twice", ""),
        ("enforce-eager: true", "enforce-eager:", "bad-value", 16, "engine.args.enforce-eager", "not empty",
         "other flag"),
        ('OFFLINE: "1"', "OFFLINE: 1", "bad-value", 17, "engine.env.HF_HUB_OFFLINE", "text is expected, not 1", '"1"'),
        ("{name: local}", "{name: cloud}", "bad-value", 18, "platform.name", "`cloud` is not allowed",
         "Allowed: local, sagemaker, kubernetes."),
        ("local}", "local, instance_types: ml.x}", "bad-value", 18, "platform.instance_types", "a list is", "first"),
        ("local}", "local, health_check_timeout: 5}", "bad-value", 18, "platform.health_check_timeout", "60", "60 to"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_explained(
    tmp_path: Path, old: str, new: str, code: str, line: int | None, path: str, message: str, hint: str
) -> None:
    (finding,) = findings(tmp_path, RECIPE.replace(old, new, 1))
    assert (finding.code, finding.line, finding.path) == (f"recipe.{code}", line, path)
    assert message in finding.message
    assert hint in finding.hint


@pytest.mark.parametrize(
    ("target", "method", "drafter"),
    [
        ("openai/gpt-oss-20b", "p-eagle", "amazon/GPT-OSS-20B-P-EAGLE"),
        ("OpenAI/GPT-OSS-20b", "eagle3", "RedHatAI/gpt-oss-20b-speculator.eagle3"),
        ("Qwen/Qwen3-8B", "eagle3", "RedHatAI/Qwen3-8B-speculator.eagle3"),  # not the first by name, which nobody read
    ],
)
def test_a_missing_drafter_is_answered_with_the_catalogues(
    tmp_path: Path, target: str, method: str, drafter: str
) -> None:
    text = RECIPE.replace("./target", target).replace("p-eagle", method).replace("  model: ./drafter\n", "")
    (finding,) = findings(tmp_path, text)
    assert finding.hint == f"Add `model: {drafter}` to `speculation`."


def test_the_evidence_of_a_recipe_is_held_to_its_own_keys(tmp_path: Path) -> None:
    evidence = "evidence:\n  - {workload: a, hardware: b, engine: c, sorce: d, source: e, date: 2026-11-20}\n"
    assert [(item.path, item.hint) for item in findings(tmp_path, RECIPE + evidence)] == [
        ("evidence.0.date", 'Write `date: "2026-11-20"`. Day of the measurement, YYYY-MM-DD in quotes.'),
        ("evidence.0.sorce", findings(tmp_path, RECIPE + evidence)[1].hint),
    ]
    assert findings(tmp_path, RECIPE + evidence)[1].hint.startswith("Did you mean `source`?")


def test_a_missing_name_is_answered_with_one_of_the_file_s_that_may_be(tmp_path: Path) -> None:
    path = tmp_path / f"my_{'a' * 40}.v2.yaml"
    path.write_text(RECIPE.partition("\n")[2])
    with pytest.raises(RecipeError, match=rf"Add `name: my-{'a' * 40}`"):
        load(path)


def test_all_problems_are_told_at_once_in_the_order_of_their_lines(tmp_path: Path) -> None:
    text = RECIPE.replace("name: tiny", "nam: tiny").replace("0.32.0", "0.32").replace("tokens: 7", "tokens: -1")
    assert [(item.line, item.path) for item in findings(tmp_path, text + "name: tiny\nname: tiny\n")] == [
        (1, "nam"),
        (7, "speculation.num_speculative_tokens"),
        (10, "engine.version"),
        (20, "name"),
    ]


def test_a_recipe_error_reads_like_a_compiler(tmp_path: Path) -> None:
    path = write_recipe(tmp_path, RECIPE.replace("p-eagle", "peagle"))
    with pytest.raises(RecipeError) as caught:
        read(path)
    assert str(caught.value) == (
        f"{path}:5 speculation.method: `peagle` is not allowed [recipe.bad-value]\n"
        "    Did you mean `p-eagle`? Allowed: p-eagle, eagle3, draft-model, pard, dflash, eagle, dspark, mtp, "
        "gemma4_mtp, ngram, ngram_gpu, suffix, none."
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "a mapping is expected at the top"),
        (b"- name: tiny\n", "a mapping is expected at the top"),
        (b"just text\n", "a mapping is expected at the top"),
        (b"name: [tiny\n", ":2 not YAML: expected ',' or ']'"),
        (b"name: tiny\n\ttarget: x\n", ":2 not YAML: found character '\\t'"),
        (b"name: tiny\ndescription: one: two\n", ":2 not YAML: mapping values are not allowed here"),
        (b"name: a\n---\nname: b\n", ":2 not YAML: but found another document"),
        (b"name: !object x\n", ":1 not YAML: could not determine a constructor"),
        (b"name: !!int x\n", "not YAML: invalid literal for int()"),
        (b"{a: b}: c\n", ":1 not YAML: a key is plain text"),
        (b"name: &a [*a]\n", "an alias within itself"),
        (b"name: \xff\n", "not UTF-8 at byte 6"),
        (b"name: \x01\n", "not YAML: unacceptable character"),
    ],
)  # fmt: skip
def test_what_is_not_a_recipe_at_all_is_unreadable(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_bytes(content)
    with pytest.raises(UnreadableRecipe) as caught:
        read(path)
    assert message in caught.value.message
    assert str(path) in caught.value.message


def test_a_folder_is_not_a_recipe(tmp_path: Path) -> None:
    with pytest.raises(RecipeNotFound, match=r"is a folder, not a recipe's file\n  Write one: toolkit new MODEL"):
        read(tmp_path)


def test_the_catalogue_is_found_by_name() -> None:
    assert "tiny/p-eagle" in catalogue()
    assert find("tiny/p-eagle").name == "p-eagle.yaml"


def test_a_near_miss_of_a_catalogue_name_is_answered_with_the_names_near_it() -> None:
    with pytest.raises(RecipeNotFound) as caught:
        find("tiny/peagle")
    assert caught.value.hint.startswith("Did you mean tiny/p-eagle or ")


@pytest.mark.parametrize(("written", "meant"), [("chta.yaml", "chat.yaml"), ("chat.yml", "chat.yaml"), ("no.yaml", "")])
def test_a_file_beside_it_is_named_if_their_names_are_alike_without_the_ending(
    tmp_path: Path, written: str, meant: str
) -> None:
    for name in ("chat.yaml", "one.yaml"):
        (tmp_path / name).touch()
    with pytest.raises(RecipeNotFound) as caught:
        find(tmp_path / written)
    assert caught.value.hint.startswith(f"Did you mean {tmp_path / meant}?" if meant else "`toolkit recipes` lists")


def test_a_name_like_none_in_the_catalogue_is_answered_with_where_to_look() -> None:
    with pytest.raises(RecipeNotFound, match="`toolkit recipes` lists"):
        find("xyz")


@pytest.mark.parametrize("name", catalogue())
def test_every_recipe_of_the_catalogue_loads(name: str) -> None:
    assert load(name).description


def test_a_name_that_is_too_long_for_a_file() -> None:
    with pytest.raises(RecipeNotFound, match="no such recipe file: File name too long") as refused:
        load("a" * 5000)
    assert len(str(refused.value)) < 200
