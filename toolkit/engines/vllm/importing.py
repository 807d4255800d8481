"""Settings that others wrote for vLLM: which format it is, and who reads it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolkit.engines.imported import Imported
from toolkit.engines.vllm.benchmark_suite import is_suite, read_suite
from toolkit.engines.vllm.collection import is_collected, is_configuration, read_collected, read_configuration
from toolkit.engines.vllm.command_line import read_command


def imported(settings: str | Mapping[str, Any], variant: str | None) -> Imported | None:
    """A command line, or the document of a file in YAML, as a recipe's sections; None for another format."""
    if isinstance(settings, str):
        return read_command(settings)
    if is_suite(settings):
        return read_suite(settings)
    if is_collected(settings):
        return read_collected(settings, variant)
    if is_configuration(settings):
        return read_configuration(settings)
    return None
