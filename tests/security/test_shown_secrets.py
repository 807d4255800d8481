"""Secrets that come with an address, an answer or a recipe are in no error, finding or record, nor in a report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pairs import HUB_RECIPE, write_pair, write_recipe

from toolkit.checks.sections import check_container
from toolkit.cli.main import run
from toolkit.errors import RecipeError, UsageError
from toolkit.findings import Finding
from toolkit.loading import load
from toolkit.text import hide_secrets

TOKEN = "hf_abcdefghijklmnopqrstuvwxyzabcdef"
SHOWN = [
    (f"401: {TOKEN} may not read it", "401: … may not read it"),
    ("http://me:hunter2@host/v1 and http://host/v1", "http://…@host/v1 and http://host/v1"),
    ("https://b.s3/x?X-Amz-Signature=0a1b&part=1", "https://b.s3/x?X-Amz-Signature=…&part=1"),
    ("Incorrect API key provided: sk-proj-abcdefghijklmnopqrst.", "Incorrect API key provided: …."),
    ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END", "…"),
    ("mail me@example.com, or see key=value", "mail me@example.com, or see key=value"),
]


@pytest.mark.parametrize(("text", "shown"), SHOWN)
def test_what_errors_and_findings_say(text: str, shown: str) -> None:
    error = UsageError(text, hint=text)
    assert (error.message, error.hint, str(error)) == (shown, shown, f"{shown}\n  {shown}")
    assert (Finding("a", text, hint="").message, Finding("a", "", hint=text).hint) == (shown, shown)


@pytest.mark.parametrize("text", [text for text, _ in SHOWN])
def test_json_stays_json(text: str) -> None:
    assert json.loads(hide_secrets(json.dumps({"a": text, "b": [text]})))["b"]


@pytest.mark.parametrize("url", ["http://me:hunter2@127.0.0.1:9/v1", "http://127.0.0.1:9/v1?api_key=hunter2"])
@pytest.mark.parametrize("command", [["bench"], ["prove"], ["bench", "tiny/ngram", "--baseline"]])
def test_an_address_with_a_secret_is_refused_before_it_is_shown(
    url: str, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*command, url, "--json"]) == 2
    out, err = capsys.readouterr()
    assert "not the URL of a server: http://" in err
    assert "hunter2" not in out + err


def test_a_refused_value_of_a_recipe_is_not_quoted_with_its_secret(tmp_path: Path) -> None:
    recipe = write_pair(tmp_path)
    recipe.write_text(recipe.read_text() + "training: {data: [a.jsonl], responses: 'http://me:hunter2@host/v1'}\n")
    with pytest.raises(RecipeError) as caught:
        load(recipe)
    assert "http://…@host/v1" in str(caught.value)


def test_a_line_of_the_dockerfile_is_named_and_not_shown(tmp_path: Path) -> None:
    (tmp_path / "Extra").write_text("RUN true\nENV HF_TOKEN=hunter2\n")
    recipe = write_recipe(tmp_path, HUB_RECIPE + "container: {dockerfile: ./Extra}\n")
    (finding,) = check_container(load(recipe))
    assert finding.path == "container.dockerfile, line 2"
    assert "hunter2" not in str(finding)
