"""Drafters that the hub lists for a model, from a hub on loopback."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from pairs import write_pair

from toolkit.api.outside import Outside
from toolkit.api.proposing import new
from toolkit.apply.progress import Silent
from toolkit.errors import RecipeNotFound
from toolkit.recipe.hub import hub_client

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def hub(folders: dict[str, Path], listed: dict[str, list[dict[str, object]]]) -> httpx.Client:
    """A client whose requests are answered from folders, and from lists by the text that was asked for."""

    def answer(request: httpx.Request) -> httpx.Response:
        url = urlsplit(str(request.url))
        if url.path == "/api/models":
            asked = parse_qs(url.query)
            key = next((asked[name][0] for name in ("filter", "search") if name in asked), "")
            return httpx.Response(200, json=listed.get(key, []))
        repo, _, rest = url.path.removeprefix("/api/models").strip("/").partition("/re")
        if repo not in folders:
            return httpx.Response(404)
        if "solve/" in rest:
            content = (folders[repo] / rest.rpartition("/")[2]).read_bytes()
            first, _, last = request.headers.get("Range", "").removeprefix("bytes=").partition("-")
            return httpx.Response(
                206 if last else 200, content=content[int(first) : int(last) + 1] if last else content
            )
        files = [{"rfilename": item.name, "size": item.stat().st_size} for item in sorted(folders[repo].iterdir())]
        return httpx.Response(200, json={"sha": COMMIT, "siblings": files})

    return httpx.Client(transport=httpx.MockTransport(answer), base_url="https://hub.test")


@pytest.fixture
def models(tmp_path: Path) -> dict[str, Path]:
    write_pair(tmp_path / "pair", method="eagle3")
    head = tmp_path / "pair" / "drafter"
    config = json.loads((head / "config.json").read_text())
    (head / "config.json").write_text(json.dumps({**config, "architectures": ["LlamaForCausalLMEagle3"]}))
    return {"org/target": tmp_path / "pair" / "target", "org/target-eagle3": head}


def test_a_head_that_names_the_model_as_its_base_is_proposed_and_locked(
    models: dict[str, Path], tmp_path: Path
) -> None:
    listed = [{"id": "org/target-awq", "tags": ["awq"]}, {"id": "org/target-eagle3", "tags": ["base_model:org/target"]}]
    client = hub(models, {"base_model:org/target": listed})
    made = new(
        "org/target",
        out=tmp_path / "mine.yaml",
        _outside=Outside(open_hub=lambda: client),
        progress=Silent(),
        context=64,
    )
    chosen = {choice.key: choice for choice in made.choices}
    assert chosen["speculation.model"].value == "org/target-eagle3"
    assert "nobody here has tried it" in chosen["speculation.model"].why
    lock = json.loads((tmp_path / "mine.lock.json").read_text())
    assert (lock["target"]["revision"], lock["drafter"]["revision"]) == (COMMIT, COMMIT)
    assert made.ok, made.findings


def test_without_a_head_the_text_drafts(models: dict[str, Path], tmp_path: Path) -> None:
    made = new(
        "org/target",
        out=tmp_path / "mine.yaml",
        _outside=Outside(open_hub=lambda: hub(models, {})),
        progress=Silent(),
        context=64,
    )
    assert made.choices[0].value == "ngram"


def test_a_head_whose_config_cannot_be_read_is_passed_over(models: dict[str, Path], tmp_path: Path) -> None:
    (models["org/target-eagle3"] / "config.json").write_text("[]")
    client = hub(models, {"base_model:org/target": [{"id": "org/target-eagle3"}, {"id": "org/gone-eagle3"}]})
    made = new(
        "org/target",
        out=tmp_path / "mine.yaml",
        _outside=Outside(open_hub=lambda: client),
        progress=Silent(),
        context=64,
    )
    assert made.choices[0].value == "ngram"


def test_a_small_model_of_the_family_drafts_if_its_tokenizer_is_the_same(
    models: dict[str, Path], tmp_path: Path
) -> None:
    other = shutil.copytree(models["org/target"], tmp_path / "small")
    folders = {"org/Toy-8B": models["org/target"], "org/Toy-0.5B": other}
    client = hub(folders, {"Toy": [{"id": "org/Toy-0.5B-GGUF"}, {"id": "org/Toy-0.5B"}, {"id": "org/Toy-70B"}]})
    made = new(
        "org/Toy-8B",
        out=tmp_path / "mine.yaml",
        _outside=Outside(open_hub=lambda: client),
        progress=Silent(),
        context=64,
    )
    assert [choice.value for choice in made.choices[:2]] == ["draft-model", "org/Toy-0.5B"]


def test_a_model_that_is_not_there_is_answered_with_names_like_it(models: dict[str, Path], tmp_path: Path) -> None:
    client = hub(models, {"targett": [{"id": "org/target"}]})
    with pytest.raises(RecipeNotFound, match="the hub has no model org/targett") as caught:
        new("org/targett", out=tmp_path / "mine.yaml", _outside=Outside(open_hub=lambda: client), progress=Silent())
    assert caught.value.hint == "Did you mean org/target?"


def test_a_hub_that_does_not_answer_is_told_in_one_line(tmp_path: Path) -> None:
    lines: list[str] = []

    class Told(Silent):
        def say(self, text: str) -> None:
            lines.append(text)

    nobody = Outside(open_hub=lambda: hub_client("http://127.0.0.1:9", timeout=1.0))
    made = new("Qwen/Qwen3-8B", out=tmp_path / "mine.yaml", _outside=nobody, progress=Told())
    assert made.ok
    assert [line for line in lines if "cannot be read" in line] == lines[1:]
