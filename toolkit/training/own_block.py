"""Which targets have a block of their own to draft with (multi-token prediction) that is trained here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

OWN_BLOCK = "mtp."
"""How its tensors begin in a checkpoint."""
TARGETS = ("qwen3_next",)
"""Model types of those that were held against an engine."""
_FLOATS = ("BF16", "F16", "F32")


class _Stored(Protocol):
    @property
    def dtype(self) -> str: ...


def has_own_block(tensors: Mapping[str, object]) -> bool:
    """Whether a checkpoint with these tensors has such a block."""
    return any(name.startswith(OWN_BLOCK) for name in tensors)


def why_not_trained(tensors: Mapping[str, _Stored] | None, model_type: object) -> str:
    """Why the block of a checkpoint is not trained; empty if it is. Without tensors they are taken to be there."""
    if tensors is not None and not has_own_block(tensors):
        return f"the checkpoint has no block of its own to draft with: no tensor begins with `{OWN_BLOCK}`"
    if model_type not in TARGETS:
        return (
            f"the block of a `{model_type}` target is not trained: only that of {', '.join(TARGETS)} was held against "
            "an engine's"
        )
    quantized = (
        name for name, one in (tensors or {}).items() if name.startswith(OWN_BLOCK) and one.dtype not in _FLOATS
    )
    if odd := next(quantized, ""):
        return f"the block is stored quantized (`{odd}`), and only one that is not can be trained on"
    return ""
