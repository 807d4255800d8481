import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from toolkit.training.plan import folder_revision
from tools.tiny.heads import HeadSettings
from tools.tiny.language_model import LanguageModelSize, next_token_loss, qwen3
from tools.tiny.models import LanguageModelSettings, Settings, make_all
from tools.tiny.optimize import Schedule, fit
from tools.tiny.texts import TextSettings, make_texts

torch.set_num_threads(1)  # models are so small here that threads only wait for each other

SIZE = LanguageModelSize(32, 64, 4, num_attention_heads=2, num_key_value_heads=1, head_dim=16)
LANGUAGE_MODEL = LanguageModelSettings(SIZE, rows=2, schedule=Schedule(2, 1e-3))
HEAD = HeadSettings("p-eagle", layers=1, depth=3, steps=2, conversations=60, batch_tokens=64)
SETTINGS = Settings(
    texts=TextSettings(count=60, row_tokens=128, vocab_size=512),
    target=LANGUAGE_MODEL,
    draft_model=LANGUAGE_MODEL,
    peagle=HEAD,
    eagle3=replace(HEAD, method="eagle3"),
)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    make_all(SETTINGS, folder / "models", folder / "scratch")
    return folder / "models"


def test_a_language_model_learns() -> None:
    torch.manual_seed(0)
    model = qwen3(SIZE, vocab_size=64, context=64, eos_token_id=2)
    tokens = torch.arange(32).repeat(2, 1)
    before = next_token_loss(model, tokens).item()

    fit(model, lambda: next_token_loss(model, tokens), Schedule(20, 5e-3), log=lambda _: None)

    assert next_token_loss(model, tokens).item() < before


def test_the_command_makes_a_target_and_a_drafter_of_every_method(models: Path) -> None:
    assert {folder.name for folder in models.iterdir()} == {"target", "p-eagle", "eagle3", "draft-model"}


def test_target_and_draft_model_load_and_share_their_tokens(models: Path) -> None:
    loaded = [AutoTokenizer.from_pretrained(models / name).get_vocab() for name in ("target", "draft-model")]
    target = AutoModelForCausalLM.from_pretrained(models / "target")

    assert loaded[0] == loaded[1]
    assert target.config.vocab_size == SETTINGS.texts.vocab_size
    assert target.dtype == torch.bfloat16


def test_the_record_tells_how_good_each_head_is_at_each_depth(models: Path) -> None:
    record = json.loads((models / "p-eagle" / "training.json").read_text())

    assert len(record["result"]["acceptance_per_depth"]) == HEAD.depth


def test_a_head_says_how_deep_it_is_and_for_which_target(models: Path) -> None:
    config = json.loads((models / "p-eagle" / "config.json").read_text())

    assert config["num_depths"] == HEAD.depth
    assert (config["target_model"], config["target_revision"]) == ("target", folder_revision(models / "target"))


def test_what_is_there_already_is_not_made_again(models: Path) -> None:
    before = {file: file.stat().st_mtime_ns for file in models.rglob("*.safetensors")}
    make_all(SETTINGS, models, models.parent / "scratch")

    assert {file: file.stat().st_mtime_ns for file in models.rglob("*.safetensors")} == before


def test_other_texts_make_other_models(models: Path, tmp_path: Path) -> None:
    shutil.copytree(models, tmp_path / "models")
    make_all(replace(SETTINGS, texts=replace(SETTINGS.texts, seed=8)), tmp_path / "models", tmp_path / "scratch")

    for name in ("target", "p-eagle", "eagle3", "draft-model"):
        weights = [(folder / name / "model.safetensors").read_bytes() for folder in (models, tmp_path / "models")]
        assert weights[0] != weights[1], name


def test_rows_start_with_a_question_and_the_checked_ones_are_kept_apart() -> None:
    texts = make_texts(SETTINGS.texts)
    start = texts.tokenizer.encode("<|im_start|>user\n").ids

    assert (texts.trained[:, : len(start)] == torch.tensor(start)).all()
    assert texts.trained.shape[1] == texts.checked.shape[1] == SETTINGS.texts.row_tokens
