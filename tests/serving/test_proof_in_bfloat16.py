"""`toolkit prove` and `toolkit.bench` as users run them: on the dtype of real deployments, and on a model that reasons,
whose recipe says no more of its engine than it must."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import toolkit
from toolkit.api.endpoint import Endpoint
from toolkit.apply.progress import Silent
from toolkit.cli.main import run
from toolkit.endpoint.generation import Answer, Generation
from toolkit.endpoint.request import chat_body
from toolkit.measure.connection import connect_endpoint

pytestmark = pytest.mark.serving

TINY = Path(__file__).parents[2] / "recipes" / "tiny"
PLAIN = f"""\
name: tiny-reasoning
description: nothing about memory, dtype and compilation
target: {{model: TARGET}}
speculation: {{method: p-eagle, model: {TINY / "models/p-eagle"}, num_speculative_tokens: 7}}
engine: {{name: vllm, version: 0.32.0, max_model_len: 1024, args: {{reasoning-parser: deepseek_r1}}}}
platform: {{name: local}}
workloads: {{structured: {TINY / "prompts/structured.jsonl"}, open-ended: {TINY / "prompts/open-ended.jsonl"}}}
"""
ALL_HOLD = dict.fromkeys(("on", "accepted", "baseline", "lossless", "same-target"), True)


def written(folder: Path, name: str, **changes: str) -> Path:
    """The shipped recipe under another name, with changed lines."""
    text = (TINY / "p-eagle.yaml").read_text()
    text = text.replace("./", f"{TINY}/").replace("name: tiny-p-eagle", f"name: {name}")
    for old, new in {"evidence:": "_:", **changes}.items():
        text = text.replace(old, new)
    path = folder / f"{name}.yaml"
    path.write_text(text.partition("_:")[0])
    return path


@contextmanager
def deployed(recipe: Path, baseline: bool) -> Iterator[Endpoint]:
    endpoint = toolkit.deploy(recipe, baseline=baseline, progress=Silent())
    try:
        yield endpoint
    finally:
        toolkit.destroy(recipe, progress=Silent())


def answered(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    """The report that the command prints."""
    code = run([*map(str, arguments), "--json"])
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert code == (0 if report["ok"] else 1), report
    return report


def holds(report: dict[str, Any]) -> dict[str, bool | None]:
    """The verdicts that no machine's speed decides."""
    return {v["claim"]: v["holds"] for v in report["verdicts"] if v["claim"] not in ("pays", "expected")}


def test_bfloat16_holds_alone_and_with_32_at_once(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Greedy answers differ there between batches of other sizes, and where a prefix is cached."""
    changes = {
        "dtype: float32": "dtype: bfloat16\n    enable-prefix-caching: true",
        "max_num_seqs: 16": "max_num_seqs: 32",
    }
    recipe = written(tmp_path, "tiny-bfloat16", **changes)
    with deployed(recipe, baseline=True):
        alone = answered(capsys, "prove", recipe, "--requests", 6, "--time", "4m")
        loaded = toolkit.bench(recipe, concurrency=(32,), requests=32, max_tokens=64, progress=Silent()).to_dict()

    assert holds(alone) == ALL_HOLD, alone
    assert holds(loaded) == ALL_HOLD, loaded
    assert {row["concurrency"] for row in loaded["arms"]} == {32}
    assert not any(row["failed"] for row in [*alone["arms"], *loaded["arms"]])


def test_reasoning_is_counted_apart_and_its_first_token_is_the_first(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """As of DeepSeek-R1, all that is written before `</think>` is reasoning: here all of an answer.

    Memory, dtype and eager mode are those of the machine.
    """
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(PLAIN.replace("TARGET", str(reasoning_target(tmp_path / "target"))))
    assert toolkit.check(recipe).ok
    with deployed(recipe, baseline=False) as endpoint:
        first, whole = asyncio.run(one_answer(endpoint))
        report = answered(capsys, "prove", recipe, "--requests", 6, "--time", "2m")

    assert (whole.text, whole.reasoning != "") == ("", True)
    assert whole.completion_tokens - 1 <= whole.reasoning_tokens <= whole.completion_tokens
    assert whole.ttft == first
    assert whole.ttft < whole.latency
    assert holds(report) == {"on": True, "accepted": True, "lossless": True, "same-target": None}, report
    assert all(row["reasoning_share"] > 0.95 for row in report["arms"]), report


def reasoning_target(folder: Path) -> Path:
    """The target with two of its unused tokens as the marks of reasoning."""
    shutil.copytree(TINY / "models/target", folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        text = (folder / name).read_text().replace("<|mask|>", "<think>").replace("<|endoftext|>", "</think>")
        (folder / name).write_text(text)
    return folder


async def one_answer(endpoint: Endpoint) -> tuple[float, Generation]:
    """When the first chunk with reasoning came, and the whole answer."""
    answer, first = Answer(), 0.0
    async with connect_endpoint(endpoint.platform, endpoint.address) as connection:
        async for chunks in connection.stream(chat_body("List the numbers from one to ten.", {"max_tokens": 400})):
            for chunk in chunks:
                answer.take(*chunk)
                if not first and b'"reasoning":"' in chunk.content.replace(b": ", b":"):
                    first = chunk.seconds
    answer.require_complete()
    return first, answer.so_far()
