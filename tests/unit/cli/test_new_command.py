"""`toolkit new`, `import` and `recipes`, as a user runs them: without a network, in an empty folder."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants
from pairs import write_model, write_pair, write_tokenizer

from toolkit.api.checking import check
from toolkit.checks.run import require
from toolkit.cli.main import run
from toolkit.loading import load

SERVE = """vllm serve Qwen/Qwen3-8B --speculative-config '{"method": "ngram", "num_speculative_tokens": 5}' --port 80"""

QWEN3 = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 1440,
    "max_position_embeddings": 2048,
}


@pytest.fixture(autouse=True)
def _offline_in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)


def document(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_name_becomes_a_recipe_that_can_be_planned(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["new", "Qwen/Qwen3-8B"]) == 0
    out, err = capsys.readouterr()
    assert "RedHatAI/Qwen3-8B-speculator.peagle" in out
    assert "toolkit deploy tiny/p-eagle" in out  # 8B parameters are not rehearsed on a laptop
    assert err.endswith("Next: toolkit plan qwen3-8b-p-eagle.yaml\n")
    assert run(["plan", "qwen3-8b-p-eagle.yaml"]) == 0


def test_an_unknown_name_says_why_the_hub_did_not_tell(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # nobody listens there
    assert run(["new", "qwen/Qwen3-33B"]) != 0
    err = capsys.readouterr().err
    assert "qwen/Qwen3-33B@main cannot be read from the hub: [Errno 111]" in err
    assert "Did you mean Qwen/Qwen3-32B" in err
    assert err.endswith("A folder works without a network: toolkit new ./FOLDER\n")


def test_the_json_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["new", "Qwen/Qwen3-8B", "--out", "mine.yaml", "--json"]) == 0
    found = document(capsys)
    assert found["recipe"] == "mine.yaml"
    assert {"speculation.method", "engine.version", "platform.instance_types"} <= {
        item["key"] for item in found["choices"]
    }
    assert {*found["choices"][0]} == {"key", "value", "why", "others"}
    assert [item for item in found["findings"] if item["severity"] == "error"] == []
    assert Path("mine.yaml").is_file()
    assert Path("mine.lock.json").is_file()


def test_a_recipe_in_the_place_of_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_pair(tmp_path)
    assert run(["new", "recipe.yaml"]) == 2
    said = capsys.readouterr().err
    assert said.endswith("error: recipe.yaml is a file, and no model\n  Of a recipe: toolkit plan recipe.yaml\n")
    assert run(["plan", "recipe.yaml"]) == 0


def test_a_file_that_is_there_is_not_replaced(capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.yaml").write_text("mine")
    assert run(["new", "Qwen/Qwen3-8B", "--out", "mine.yaml"]) == 2
    assert "--out mine-2.yaml" in capsys.readouterr().err
    assert Path("mine.yaml").read_text() == "mine"


@pytest.mark.parametrize("model", ["Qwen/Qwen3-8b-instruct", "qwen3-8b", "Qwen/Qwen3-8"])
def test_a_name_that_is_not_known_is_answered_with_the_nearest(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["new", model]) == 2
    assert "Did you mean" in (err := capsys.readouterr().err)
    assert "Qwen/Qwen3-8B" in err
    assert err.count(" or ") <= 2, "three names at most"
    assert not list(Path().iterdir())


def test_a_folder_that_does_not_exist_is_answered_with_one_beside_it(capsys: pytest.CaptureFixture[str]) -> None:
    Path("my-model").mkdir()
    assert run(["new", "./my-modl"]) == 2
    assert capsys.readouterr().err.endswith("there is no folder ./my-modl\n  Did you mean ./my-model?\n")


def test_what_cannot_be_is_told_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["new", "deepseek-ai/DeepSeek-R1", "--max-price", "10"]) == 1
    assert (
        "nothing that holds the models costs 10 $/h or less; the cheapest is ml.p5en.48xlarge"
        in capsys.readouterr().err
    )


def test_a_folder_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_pair(tmp_path / "models")
    assert run(["new", "models/target", "--platform", "local", "--out", "mine.yaml"]) == 0
    assert "target: {model: ./models/target}" in Path("mine.yaml").read_text()
    assert run(["check", "mine.yaml"]) == 0


def test_a_known_model_is_not_taken_for_a_folder_of_that_name(tmp_path: Path) -> None:
    (tmp_path / "Qwen" / "Qwen3-8B").mkdir(parents=True)
    assert run(["new", "Qwen/Qwen3-8B", "--out", "mine.yaml"]) == 0
    assert "target: {model: Qwen/Qwen3-8B}" in Path("mine.yaml").read_text()


def test_a_model_without_a_head_gets_one_road_to_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_model(tmp_path / "mine", {**QWEN3, "dtype": "bfloat16"}, {"lm_head.weight": (1440, 128)})
    write_tokenizer(tmp_path / "mine")
    assert run(["new", "./mine"]) == 0
    out, err = capsys.readouterr()
    assert "lock.stale" not in out
    for path, head in (("mine.yaml", "./mine-head"), ("mine-local.yaml", "./mine-head-local")):
        recipe = load(path)
        assert (recipe.name, recipe.method) == ("mine", "ngram")
        assert recipe.training
        assert recipe.training.head == str(tmp_path / head)
        assert [item.code for item in check(path).findings if item.severity != "info"] == []
        require(recipe)  # it can be deployed
    assert "g4dn" not in Path("mine.yaml").read_text()  # a T4 has no arithmetic for bfloat16
    assert "with an image" not in Path("mine-local.yaml").read_text()
    steps = re.findall(r"^  toolkit (\w+) mine-local\.yaml", err, re.M)
    assert steps == ["train", "deploy", "prove", "improve"]
    assert run(["train", "mine.yaml", "--dry-run"]) == 1
    assert "mine.yaml:11 training.data.0: there is no file or folder" in capsys.readouterr().err


def test_a_model_in_float16_may_be_served_by_the_cheapest_gpu(tmp_path: Path) -> None:
    write_model(tmp_path / "mine", {**QWEN3, "dtype": "float16"}, {"lm_head.weight": (1440, 128)})
    write_tokenizer(tmp_path / "mine")
    assert run(["new", "./mine"]) == 0
    assert load("mine.yaml").platform.types == ("ml.g4dn.xlarge",)


def test_a_small_model_gets_a_rehearsal_beside_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    write_pair(tmp_path / "models")
    assert run(["new", "./models/target", "--out", "mine.yaml", "--json"]) == 0
    found = document(capsys)
    assert found["rehearsal"] == "mine-local.yaml"
    assert "name: local" in Path("mine-local.yaml").read_text()
    assert run(["check", "mine-local.yaml"]) == 0


def test_questions_are_asked_on_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stdin", Terminal("\nthroughput\nmany\n3\n8192\n"))
    monkeypatch.setattr("sys.stderr", Terminal())
    assert run(["new", "Qwen/Qwen3-8B", "--out", "asked.yaml"]) == 0
    text = Path("asked.yaml").read_text()
    assert "max_model_len: 8192  # tokens of prompt and answer together, as you asked" in text
    assert "max_num_seqs: 128  # requests decoded together, for throughput" in text


def test_a_command_is_imported_from_stdin(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(SERVE))
    assert run(["import", "-", "--out", "mine.yaml", "--json"]) == 0
    found = document(capsys)
    assert found["recipe"] == "mine.yaml"
    assert found["findings"][0]["code"] == "import.left-out"
    assert "method: ngram" in Path("mine.yaml").read_text()


def test_the_hint_for_a_missing_file_shows_a_command_that_can_be_imported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["import", "serve.sh"]) == 2
    found = re.search("echo '(.+)' [|] toolkit import -", capsys.readouterr().err)
    assert found
    monkeypatch.setattr("sys.stdin", io.StringIO(found[1]))
    assert run(["import", "-", "--out", "mine.yaml"]) == 0


def test_recipes_can_be_filtered(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        run(["recipes", "--model", "qwen3", "--hardware", "g6e", "--max-price", "3", "--method", "p-eagle", "--json"])
        == 0
    )
    assert [*document(capsys)] == ["qwen3-8b/p-eagle", "qwen3-8b/train-p-eagle"]
    assert run(["recipes", "--hardware", "trainium", "--with-evidence", "--json"]) == 0
    measured = set(document(capsys))
    assert run(["recipes", "--hardware", "trainium", "--json"]) == 0
    assert measured < set(document(capsys))
    assert all("trn" in name for name in measured)
    assert run(["recipes", "--model", "llama", "--hardware", "trainium", "--max-price", "30", "--json"]) == 0
    assert [*document(capsys)] == ["llama-3.1-8b-instruct/draft-model-trn1"], "an unknown price may be above it"
    assert run(["recipes", "--method", "peagle"]) == 2
    assert "p-eagle" in capsys.readouterr().err


def test_one_recipe_is_shown_with_price_fit_and_evidence(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["recipes", "show", "qwen3-8b/p-eagle"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("# yaml-language-server")
    assert "Price: 2.80 $/h" in out
    assert "ml.g6e.2xlarge: fits, with room for" in out
    assert "math reasoning" in out
    assert run(["recipes", "show", "qwen3-8b/peagle"]) == 2
    assert "Did you mean qwen3-8b/p-eagle" in capsys.readouterr().err


def test_a_recipe_can_go_to_stdout(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(["new", "Qwen/Qwen3-8B", "--out", "-"]) == 0
    text = capsys.readouterr().out
    monkeypatch.setattr("sys.stdin", io.StringIO(SERVE))
    assert run(["import", "-", "--out", "-"]) == 0
    imported = capsys.readouterr().out
    assert not list(Path().iterdir())
    Path("new.yaml").write_text(text)
    Path("imported.yaml").write_text(imported)
    assert load("new.yaml").method == "p-eagle"
    assert load("imported.yaml").method == "ngram"
    assert run(["new", "Qwen/Qwen3-8B", "--out", "-", "--json"]) == 0
    assert document(capsys)["text"] == text


@pytest.mark.parametrize(
    ("folder", "name"), [("Ünicode-bot", "unicode-bot"), ("Straße_8B", "strasse-8b"), ("模型", "my-model")]
)
def test_a_name_keeps_letters_of_other_alphabets_where_it_can(folder: str, name: str, tmp_path: Path) -> None:
    write_model(tmp_path / folder, QWEN3, {"lm_head.weight": (1440, 128)})
    write_tokenizer(tmp_path / folder)
    assert run(["new", f"./{folder}", "--platform", "local"]) == 0
    assert load(f"{name}.yaml").name == name
