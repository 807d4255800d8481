"""A recipe of a test's own, and what `toolkit render` writes of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from toolkit.cli.main import run

RECIPES = Path(__file__).parents[2] / "recipes"
_SHIPPED = RECIPES / "llama-3.1-8b-instruct/eagle3.lock.json"
Kubectl = Callable[..., str]


def recipe_file(folder: Path, name: str, namespace: str, most: int = 1, **settings: Any) -> Path:
    """Of an endpoint of that name, with up to `most` pods; `settings` are of `kubernetes:`. A node has one GPU."""
    speculation = {
        "method": "eagle3",
        "model": "RedHatAI/Llama-3.1-8B-Instruct-speculator.eagle3",
        "num_speculative_tokens": 3,
    }
    recipe = {
        "name": name,
        "target": {"model": "meta-llama/Llama-3.1-8B-Instruct"},
        "speculation": speculation,
        "engine": {
            "version": "0.33.0",
            "max_model_len": 8192,
            "max_num_seqs": 16,
            "max_num_batched_tokens": 8192,
            "args": {"tensor-parallel-size": settings.get("nodes", 1)},
        },
        "platform": {
            "name": "kubernetes",
            "instance_types": ["g6e.xlarge"],
            "hub_token_secret": "hub",
            "kubernetes": {"namespace": namespace, **settings},
        },
        "scaling": {"max_instances": most},
    }
    path = folder / f"{name}.yaml"
    path.write_text(json.dumps(recipe))
    path.with_suffix(".lock.json").write_bytes(_SHIPPED.read_bytes())
    return path


def shipped_at(folder: Path, namespace: str) -> Path:
    """The shipped recipe for a cluster, in a namespace of the test's own."""
    shipped, path = RECIPES / "qwen3-32b/draft-model-trn2-eks.yaml", folder / "shipped.yaml"
    settings = "    neuron_devices"
    path.write_text(shipped.read_text().replace(settings, f"    namespace: {namespace}\n{settings}"))
    path.with_suffix(".lock.json").write_bytes(shipped.with_suffix(".lock.json").read_bytes())
    return path


def rendered(folder: Path, name: str, namespace: str, **settings: Any) -> Path:
    """The folder that `toolkit render` writes for it."""
    assert run(["render", str(recipe_file(folder, name, namespace, **settings)), "--out", str(folder / name)]) == 0
    return folder / name
