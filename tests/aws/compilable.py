"""A recipe that compiles, on the stand-in, with a registry that has its image, and jobs that compile it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from pairs import write_pair, write_recipe
from small_images import push_base
from standin import StandIn

from toolkit.images.registry import Registry

RECIPE = """\
name: sd
target: {{model: ./target}}
speculation: {{method: draft-model, model: ./drafter, num_speculative_tokens: 5}}
engine: {{name: neuron, max_model_len: 1024, max_num_seqs: 4, args: {{tensor-parallel-size: 2}}}}
container: {{base: '{host}/base:1'}}
platform: {{name: sagemaker, role: create, instance_types: [ml.trn2.48xlarge]}}
"""


def compilable(
    standin: StandIn, host: str, folder: Path, monkeypatch: pytest.MonkeyPatch, recipe: str = RECIPE
) -> Path:
    """The recipe, in that folder; `host` is the registry. What compiles leaves what the container does."""
    for name, value in {**standin.environment(), "TOOLKIT_POLL_SECONDS": "0.01"}.items():
        monkeypatch.setenv(name, value)
    standin.account.registry.host = host
    standin.training.container = leave
    with Registry(host) as registry:
        push_base(registry, "base", runs_python=True)
    write_pair(folder, "draft-model")
    return write_recipe(folder, recipe.format(host=host))


def leave(environment: Mapping[str, str]) -> dict[str, bytes]:
    record = {
        "key": environment["TOOLKIT_ARTIFACTS_KEY"],
        "parts": json.loads(environment["TOOLKIT_ARTIFACTS_PARTS"]),
    }
    return {"nxd/model.pt": b"compiled", "artifacts.json": json.dumps(record).encode()}
