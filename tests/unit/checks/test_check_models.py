"""Model folders that cannot be read, and the file that is to blame."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from pairs import edit_config, write_pair

from toolkit.api.checking import check

Edit = Callable[[Path], object]


def weights(content: bytes) -> Edit:
    return lambda folder: (folder / "model.safetensors").write_bytes(content)


def header(document: object, length: int | None = None) -> Edit:
    text = json.dumps(document).encode()
    return weights(struct.pack("<Q", len(text) if length is None else length) + text)


def cut(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])


def text(name: str, content: str) -> Edit:
    return lambda folder: (folder / name).write_text(content)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (shutil.rmtree, "there is no folder {folder}"),
        (lambda folder: (folder / "config.json").unlink(), "{folder}/config.json is missing"),
        (text("config.json", "{"), "cannot read {folder}/config.json: it is not JSON: Expecting property name"),
        (text("config.json", "[]"), "{folder}/config.json is not a JSON object"),
        (lambda folder: edit_config(folder, hidden_size=None), "{folder}/config.json has no `hidden_size`"),
        (lambda folder: edit_config(folder, vocab_size="32"), "{folder}/config.json: `vocab_size`: Input should be"),
        (lambda folder: edit_config(folder, text_config={}), "{folder}/config.json has no `hidden_size`"),
        (lambda folder: (folder / "model.safetensors").unlink(), "{folder} holds no *.safetensors file"),
        (weights(b""), "{folder}/model.safetensors is not a safetensors file: unpack requires"),
        (weights(b"version https://git-lfs.github.com/spec/v1"), "not a safetensors file: header of "),
        (header({}, length=100_000_001), "not a safetensors file: header of 100000001 bytes"),
        (header({"a": 1}, length=9999), "not a safetensors file"),
        (header([]), "not a safetensors file"),
        (header({"a": {"dtype": "BF16"}}), "not a safetensors file: 'data_offsets'"),
        (header({"a": {"dtype": "F32", "shape": [], "data_offsets": [8, 4]}}), "a tensor of 'F32' () from 8 to 4"),
        (cut, "not a safetensors file: cut short, "),
        (text("tokenizer.json", "{"), "cannot read {folder}/tokenizer.json"),
        (text("tokenizer.json", "{}"), "{folder}/tokenizer.json is not a tokenizer: KeyError('model')"),
        (text("tokenizer.json", '{"model": null}'), "{folder}/tokenizer.json is not a tokenizer"),
    ],
)
@pytest.mark.parametrize(("key", "name", "line"), [("target.model", "target", 3), ("speculation.model", "drafter", 6)])
def test_an_unreadable_model(tmp_path: Path, edit: Edit, message: str, key: str, name: str, line: int) -> None:
    recipe = write_pair(tmp_path)
    edit(tmp_path / name)
    (finding,) = check(recipe).findings
    assert (finding.code, finding.path, finding.line) == ("model.unreadable", key, line)
    assert message.format(folder=tmp_path / name) in finding.message
    assert finding.hint


def test_two_unreadable_models_are_told_at_once(tmp_path: Path) -> None:
    recipe = write_pair(tmp_path)
    shutil.rmtree(tmp_path / "target")
    shutil.rmtree(tmp_path / "drafter")
    assert [finding.line for finding in check(recipe).findings] == [3, 6]


def test_an_unreadable_model_does_not_hide_what_is_wrong_with_the_rest(tmp_path: Path) -> None:
    recipe = write_pair(tmp_path)
    recipe.write_text(recipe.read_text().replace("0.32.0", "0.15.0"))
    shutil.rmtree(tmp_path / "target")
    assert {finding.code for finding in check(recipe).findings} == {
        "model.unreadable",
        "engine.version",
        "container.image",
    }
