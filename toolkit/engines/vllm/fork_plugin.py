"""Says to vLLM which of our platforms it should use, as its documentation asks of a platform plugin.

vLLM asks every installed plugin, in each of its processes, wherever it serves: so this answers only where the local
platform asked for it, and imports nothing.
"""

from __future__ import annotations

import os

VARIABLE = "TOOLKIT_VLLM_FORKS"


def platform() -> str | None:
    """The class of the platform, by its full name; None leaves the choice to vLLM."""
    return "toolkit.engines.vllm.forking_cpu.ForkingCpu" if os.environ.get(VARIABLE) == "1" else None
