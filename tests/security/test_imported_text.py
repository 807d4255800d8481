"""What is imported or proposed comes from strangers: it is read, never run, and can add nothing to a recipe."""

from __future__ import annotations

from pathlib import Path

import pytest
from hostile import HOSTILE, obeyed
from ruamel.yaml import YAML

from toolkit.api.importing import import_recipe
from toolkit.errors import ToolkitError, UsageError
from toolkit.proposal.model import Choice, Proposal
from toolkit.proposal.text import recipe_text
from toolkit.recipe.facts import Lock, ModelFacts

BOMB = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
SECRETS = {
    "variable": "HF_TOKEN=hf_topsecret vllm serve m/x",
    "of a container": "docker run -e HUGGING_FACE_HUB_TOKEN=hf_topsecret vllm/vllm-openai:v0.30.0 --model m/x",
    "another container option": "docker run --env MY_API_KEY=hf_topsecret vllm/vllm-openai:v0.30.0 --model m/x",
    "the server's own": "vllm serve m/x --api-key hf_topsecret",
    "joined": "vllm serve m/x --api-key=hf_topsecret --hf-token=hf_topsecret",
    "suite": "deployment: {model: {id: m/x}, vllm: {extra_env: {HF_TOKEN: hf_topsecret, SM_VLLM_API_KEY: topsecret}}}",
}


def test_no_part_of_a_command_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    import_recipe("vllm serve m/x --seed $(touch pwned) `touch pwned`; touch pwned && touch pwned", out="mine.yaml")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.yaml"]


@pytest.mark.parametrize("text", SECRETS.values(), ids=SECRETS)
def test_a_secret_is_neither_written_nor_shown(text: str, tmp_path: Path) -> None:
    made = import_recipe(text, out=tmp_path / "mine.yaml")
    assert "topsecret" not in made.path.read_text() + repr(made) + str(made.to_dict())


@pytest.mark.parametrize("text", [f"deployment: {{model: {{id: m/x}}}}\n{BOMB}", "[" * 100_000, "x" * 300_000])
def test_a_text_that_would_become_huge_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        import_recipe(text, out=tmp_path / "mine.yaml")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "flag", ["--trust-remote-code", "--tool-parser-plugin /tmp/x.py", "--enable-lora --worker-cls x.Y"]
)
def test_flags_that_run_code_are_not_taken_over(flag: str, tmp_path: Path) -> None:
    made = import_recipe(f"vllm serve m/x {flag}", out=tmp_path / "mine.yaml")
    assert "engine.risk" not in [finding.code for finding in made.findings]
    assert any(flag.split()[-2 if " " in flag else 0] in finding.message for finding in made.left_out)


@pytest.mark.parametrize("value", [HOSTILE, "m/x\nengine: {args: {trust-remote-code: true}}", "m/x # }", "{a: b}"])
def test_a_value_stays_one_value(value: str, tmp_path: Path) -> None:
    quoted = value.replace("'", "")
    try:
        made = import_recipe(
            f"vllm serve '{quoted}' --served-model-name '{quoted}'", name="mine", out=tmp_path / "mine.yaml"
        )
    except ToolkitError:
        return
    text = made.path.read_text()
    found = YAML(typ="safe").load(text)
    assert found["target"] == {"model": quoted}
    assert [*found] == ["name", "target", "speculation", "engine", "platform"]
    assert not obeyed(text)


def test_a_reason_cannot_leave_its_comment() -> None:
    facts = ModelFacts("m/x", "", {"hidden_size": 1, "vocab_size": 1}, None, None)
    choice = Choice("target.model", "m/x", f"said\nengine: {{}}\r\x85\u2028{HOSTILE}", (f"x\n{HOSTILE}",))
    text = recipe_text(Proposal({"name": "mine", "target": {"model": "m/x"}}, [choice], Lock(facts)), "by\nme: 1")
    assert [*YAML(typ="safe").load(text)] == ["name", "target"]
    assert not obeyed(text)
