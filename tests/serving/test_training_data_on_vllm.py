"""A head learns from what vLLM will give it: the same hidden states, and the same answers of the target."""

from __future__ import annotations

import re
import shutil
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from forked_vllm import ForkedVllm
from safetensors.torch import load_file
from transformers import DeepseekV2Config

from toolkit.recipe.known import catalogue_dir
from toolkit.training.chat import Chat, load_chat
from toolkit.training.generators import InTransformers
from toolkit.training.responses import Question
from toolkit.training.states import Extractor, load_target

pytestmark = pytest.mark.serving

TINY = catalogue_dir() / "tiny" / "models"
TARGET = str(TINY / "target")
LAYERS = (2, 3, 5)
PROMPTS = (
    "Count from 20 to 60.",
    "Write JSON records of the books 12 to 14.",
    "Tell me a story about the owl and the kite.",
)


@pytest.fixture(scope="module")
def chat() -> Chat:
    return load_chat(TARGET)


def questions(chat: Chat) -> list[Question]:
    messages = [({"role": "user", "content": prompt},) for prompt in PROMPTS]
    return [Question(one, chat.prompt(one), 40) for one in messages]


def test_hidden_states_are_those_that_vllm_hands_to_a_head(chat: Chat, vllm: ForkedVllm, tmp_path: Path) -> None:
    sequences = [question.prompt for question in questions(chat)]
    arguments = {
        "model": TARGET,
        "dtype": "float32",
        "max_model_len": 1024,
        "enforce_eager": True,
        "enable_prefix_caching": False,
        "kv_cache_memory_bytes": 64 * 1024**2,
        "speculative_config": {
            "method": "eagle3",
            "model": str(TINY / "p-eagle"),
            "num_speculative_tokens": 7,
            "parallel_drafting": True,
        },
    }
    vllm.run("hidden_states", arguments=arguments, sequences=sequences, file=str(tmp_path / "states"))
    served = load_file(tmp_path / "states")
    target = load_target(TARGET, dtype="float32")
    states = Extractor(target, LAYERS).states([torch.tensor(one) for one in sequences])
    starts = [len(one) for one in sequences]
    for index, (layers, last) in enumerate(
        zip(states.hidden_states.split(starts), states.last_hidden_states.split(starts), strict=True)  # type: ignore[no-untyped-call]
    ):
        torch.testing.assert_close(served[f"auxiliary.{index}"], layers, atol=2e-4, rtol=2e-4)
        with torch.inference_mode():
            normed = target.base_model.norm(last)
        torch.testing.assert_close(served[f"normed.{index}"], normed, atol=2e-4, rtol=2e-4)


def test_the_states_of_a_jobs_own_vllm_are_those_of_transformers(chat: Chat, vllm: ForkedVllm, tmp_path: Path) -> None:
    """Also of a sequence as long as all that the job allows, and of layers with the last one among them; and a target
    whose files say something else is refused.
    """
    layers = (2, 3, load_target(TARGET).config.num_hidden_layers)
    sequences = [question.prompt for question in questions(chat)] + [chat.encode("one two three " * 40)]
    target, work = tmp_path / "target", tmp_path / "work"
    shutil.copytree(TARGET, target)
    work.mkdir()
    environment = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "1"}
    refused = vllm.run(
        "trainers_states", environment, target=str(target), work=str(work), sequences=sequences, layers=layers
    )
    assert len(refused) == 1, "no file of vLLM's connector stays"
    assert re.search(r"are not those of its engine \((1[5-9]|2\d)\.\d% off\)", refused[0])
    found = load_file(work / "states")
    expected = Extractor(load_target(TARGET, dtype="float32"), layers).states([torch.tensor(one) for one in sequences])
    for name, states in vars(expected).items():
        torch.testing.assert_close(found[name], states, atol=2e-4, rtol=2e-4)


def test_a_vllm_that_cannot_give_states_says_why(vllm: ForkedVllm, tmp_path: Path) -> None:
    config = DeepseekV2Config(hidden_size=64, num_attention_heads=2, num_hidden_layers=2, vocab_size=64)
    config.architectures = ["DeepseekV2ForCausalLM"]
    config.save_pretrained(tmp_path / "mla")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text('{"model_type": "nobody"}')
    targets = [TARGET, str(tmp_path / "mla"), str(tmp_path / "broken")]
    good, mla, broken = vllm.run("why_no_states", targets=targets, version="0.26.0+cpu")
    assert good == ""
    assert mla == "vLLM 0.26.0+cpu extracts no hidden states beside MLA's KV cache"
    assert re.match(r"vLLM 0.26.0\+cpu does not read the target: .*nobody", broken)
    old = vllm.run("why_no_states", targets=targets[:1], version="0.25.1")
    assert old == ["vLLM 0.25.1 does not give them; 0.26.0 and newer ones do"]


def test_vllm_and_transformers_give_the_same_greedy_answers(chat: Chat, vllm: ForkedVllm) -> None:
    asked = questions(chat)
    environment = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "1"}
    answers = vllm.run("trainers_answers", environment, target=TARGET, questions=[asdict(one) for one in asked])
    expected = InTransformers(load_target(TARGET, dtype="float32"), chat)(asked)
    assert answers == [answer and asdict(answer) for answer in expected]
    assert next(answer["text"] for answer in answers if answer).startswith("20\n21\n22")
