"""vLLM asks every installed package for a platform: ours answers only where the local platform asked for it."""

from __future__ import annotations

from importlib.metadata import entry_points

import pytest


def test_vllm_is_offered_a_platform_only_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    plugin = entry_points(group="vllm.platform_plugins")["toolkit-forking-cpu"].load()
    monkeypatch.delenv("TOOLKIT_VLLM_FORKS", raising=False)
    assert plugin() is None
    monkeypatch.setenv("TOOLKIT_VLLM_FORKS", "1")
    assert plugin() == "toolkit.engines.vllm.forking_cpu.ForkingCpu"
