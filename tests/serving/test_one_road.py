"""From a folder to a proved head, as a user walks it, while others have a third of the machine's memory.

The model is none of the project's: transformers builds it here in bfloat16, with a tokenizer and a chat template of its
own, and it learns for a minute to write JSON, so that there is something to foresee. What this shows is that the road
holds and that a head trained on it pays; how much says nothing of a large model.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fine_tune import make_model, write_chats, write_prompts

import toolkit
from toolkit.cli.main import run

pytestmark = [
    pytest.mark.serving,
    pytest.mark.timeout(1800),
    pytest.mark.skipif("TOOLKIT_ONE_ROAD" not in os.environ, reason="takes ten minutes: make test-exhaustive runs it"),
]

# As a user with little time would: a small head, and few steps.
_SHORT = """\
  layers: 1
  steps: 120
  batch_tokens: 1024
  max_length: 512
  max_new_tokens: 160
  learning_rate: 0.004
"""
_HOLD = """\
import sys
held = bytearray(int(sys.argv[1]))
held[::4096] = b"x" * len(held[::4096])  # each page: what is not written to is not there
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def _third_of_memory_is_taken() -> Iterator[None]:
    third = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 3
    command = [sys.executable, "-c", _HOLD, str(third)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdin
        assert holder.stdout
        assert holder.stdout.readline() == b"held\n"
        yield
        holder.stdin.close()


@pytest.mark.usefixtures("_third_of_memory_is_taken")
def test_a_fine_tune_gets_a_head_of_its_own_that_pays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    make_model(tmp_path / "my-model", steps=250)
    assert run(["new", "./my-model", "--platform", "local"]) == 0
    said = capsys.readouterr()
    assert "lock.stale" not in said.out + said.err
    steps = re.findall(r"^  toolkit (\w+) my-model\.yaml(.*?) +#", said.err, re.M)
    assert [command for command, _ in steps] == ["train", "deploy", "prove", "improve"]

    write_chats(tmp_path / "chats.jsonl", 100, seed=5)
    write_prompts(tmp_path / "structured.jsonl", 24, seed=6)
    recipe = tmp_path / "my-model.yaml"
    head = re.compile(r"(?<=\n)  head: .*\n")
    text = head.sub(lambda found: f"{found[0]}{_SHORT}", recipe.read_text())
    recipe.write_text(f"{text}workloads: {{structured: ./structured.jsonl}}\n")

    assert run(["train", "my-model.yaml"]) == 0
    shown = capsys.readouterr().err
    assert "drafts with ./my-model-head-local now, in place of ngram" in shown
    assert "EngineCore" not in shown  # vLLM's own lines, which were cut
    assert toolkit.load(recipe).method == "p-eagle"
    try:
        assert run(["deploy", "my-model.yaml", *steps[1][1].split(), "--no-prove"]) == 0
        proof = toolkit.connect("my-model").prove(seconds=300)
    finally:
        toolkit.destroy("my-model")
    assert {verdict.claim: verdict.holds for verdict in proof.verdicts if verdict.claim != "pays"} == dict.fromkeys(
        ("on", "accepted", "baseline", "lossless", "same-target"), True
    ), proof
    (accepted,) = [arm.acceptance_length for arm in proof.arms if arm.arm == "speculative"]
    assert accepted is not None
    assert accepted > 2.5, proof
    (faster,) = proof.speedups
    # On a machine that is busy with other tests the interval may be too wide to show it.
    assert faster.pays is not False, proof
    assert faster.ratio > 1, proof
