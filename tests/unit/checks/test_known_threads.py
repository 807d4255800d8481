"""Public threads on speculative decoding in vLLM: what `toolkit check` says to their settings, or why it cannot.

docs/known-threads.md is made from the same file: `python -m tools.threads_page`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pairs import write_hub_pair

from toolkit.api.checking import check

FILE = Path(__file__).with_name("known_threads.json")
THREADS: list[dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8"))["threads"]
NAMED = [thread for thread in THREADS if "code" in thread]

RECIPE = """\
name: thread
target: {{model: {target}}}
speculation:
  method: {method}
{drafter}  num_speculative_tokens: {k}
{speculation}engine: {engine}
platform: {{name: sagemaker, instance_types: [{instance}], health_check_timeout: 600}}
"""


def recipe(thread: dict[str, Any]) -> str:
    more = thread.get("speculation", {})
    return RECIPE.format(
        target=thread["target"],
        method=thread["method"],
        drafter=f"  model: {thread['drafter']}\n" if "drafter" in thread else "",
        k=thread["k"],
        speculation="".join(f"  {key}: {json.dumps(value)}\n" for key, value in more.items()),
        engine=json.dumps({"version": thread["version"], "max_model_len": 1024, **thread.get("engine", {})}),
        instance=thread.get("instance", "ml.p5.48xlarge"),
    )


@pytest.mark.parametrize("thread", NAMED, ids=lambda thread: thread["thread"].rpartition("#")[2])
def test_the_settings_of_a_thread_have_its_finding(tmp_path: Path, thread: dict[str, Any]) -> None:
    target = {"model": thread["target"], "config": thread.get("target_config", {})}
    if "generation_config" in thread:
        target["generation_config"] = thread["generation_config"]
    drafter = {"model": thread.get("drafter", ""), "config": thread.get("drafter_config", {})}
    findings = check(write_hub_pair(tmp_path, recipe(thread), target=target, drafter=drafter)).findings
    assert thread["code"] in [finding.code for finding in findings]


def test_there_are_sixty_and_each_is_named_or_has_a_reason() -> None:
    assert len({thread["thread"] for thread in THREADS}) == len(THREADS) >= 60
    assert all(("code" in thread) != ("beyond" in thread) for thread in THREADS)
    assert {"crash", "acceptance 0", "garbage", "slow", "out of memory"} <= {thread["symptom"] for thread in THREADS}
