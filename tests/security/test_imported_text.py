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
    "named otherwise": "MY_PWD=topsecret APP_PASSWD=topsecret DB_PASS=topsecret vllm serve m/x",
    "in a URL": "STORE=postgres://user:topsecret@host/db vllm serve m/x --chat-template 'https://u:topsecret@h/$X'",
    "within JSON": """vllm serve m/x --kv-transfer-config '{"kv_role": "x", "extra": {"password": "topsecret"}}'""",
    "a key of JSON": "vllm serve m/x --kv-transfer-config.password topsecret --kv-transfer-config.kv_role kv_both",
    "a known shape": f"STORE=hf_topsecret{'a1' * 12} vllm serve m/x --seed AKIA{'TOPSECRET1234567'}",
    "of the container": "docker run --password topsecret -v /a:/b vllm/vllm-openai:v0.30.0 --model m/x",
    "another command": "vllm serve m/x; export TOKEN=topsecret && curl -H x --api-key topsecret",
    "of another tool": "model: {model_id: m/x, extra: {password: topsecret}}\nother: {deep: [{token: topsecret}]}",
    "suite": "deployment: {model: {id: m/x}, vllm: {extra_env: {HF_TOKEN: hf_topsecret, SM_VLLM_API_KEY: topsecret}}}",
}


def test_no_part_of_a_command_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    import_recipe("vllm serve m/x --seed $(touch pwned) `touch pwned`; touch pwned && touch pwned", out="mine.yaml")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.yaml"]


@pytest.mark.parametrize("text", SECRETS.values(), ids=SECRETS)
def test_a_secret_is_neither_written_nor_shown(text: str, tmp_path: Path) -> None:
    made = import_recipe(text, out=tmp_path / "mine.yaml")
    assert "topsecret" not in (made.path.read_text() + repr(made) + str(made.to_dict())).lower()


def test_what_is_left_out_is_named_by_its_key(tmp_path: Path) -> None:
    text = f"MY_PWD=x STORE=postgres://u:p@h {SECRETS['within JSON']} --seed 1"
    made = import_recipe(text, out=tmp_path / "mine.yaml")
    said = [finding.message for finding in made.left_out]
    assert [one.split(": ")[1] for one in said] == ["MY_PWD=…", "STORE=…", "--kv-transfer-config (its extra.password)"]
    assert YAML(typ="safe").load(made.path.read_text())["engine"] == {"args": {"seed": 1}}


@pytest.mark.parametrize(
    ("key", "text"),
    {
        "target": "vllm serve https://user:topsecret@host/m/x",
        "speculation": (
            "deployment: {model: {id: m/x}, vllm: {}, speculative_decoding: "
            "{enabled: true, method: eagle3, model: 'https://user:topsecret@host/m/y', num_speculative_tokens: 3}}"
        ),
    }.items(),
)
def test_a_secret_in_a_models_name_is_refused(key: str, text: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=rf"`{key}\.model` looks like a secret") as refused:
        import_recipe(text, out=tmp_path / "mine.yaml")
    assert "topsecret" not in f"{refused.value} {refused.value.hint}"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("model", ["a/..", "a/-"])
def test_a_model_whose_name_has_no_letter_needs_a_name(model: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="name") as refused:
        import_recipe(f"vllm serve {model}", out=tmp_path / "mine.yaml")
    assert "--name" in refused.value.hint
    assert not list(tmp_path.iterdir())
    assert import_recipe(f"vllm serve {model}", name="mine", out=tmp_path / "mine.yaml").path.exists()


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


def test_variables_that_grow_are_not_filled_in_for_ever(tmp_path: Path) -> None:
    """Each line doubles what the one before it assigned."""
    lines = ["V0=xxxxxxxx", *(f"V{number + 1}=$V{number}$V{number}" for number in range(60))]
    text = "\n".join([*lines, "vllm serve org/target --seed $V60"])
    with pytest.raises(UsageError, match="its variables stand for more than 8,192 characters"):
        import_recipe(text, out=tmp_path / "recipe.yaml")


def test_a_secret_of_a_line_before_is_not_filled_in(tmp_path: Path) -> None:
    text = "HF_TOKEN=abcdef123456\nvllm serve org/target --seed $HF_TOKEN --revision ${HF_TOKEN}"
    made = import_recipe(text, out=tmp_path / "recipe.yaml")
    assert "abcdef123456" not in made.path.read_text() + repr(made)
