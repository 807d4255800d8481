"""vLLM's connector for hidden states, on a machine without a GPU. `hidden_states` names it, and vLLM imports it.

vLLM's own one copies on a CUDA stream and then writes in a thread. Here the states are in the machine's memory already.
"""

from __future__ import annotations

import os
from typing import Any

import torch
from safetensors.torch import save_file
from vllm.distributed.kv_transfer.kv_connector.v1.example_hidden_states_connector import (
    ExampleHiddenStatesConnector,
    extract_from_kv_cache,
)


class _Done:
    """Stands for the event that a copy on a GPU ends with."""

    def query(self) -> bool:
        return True


class StatesOnCpu(ExampleHiddenStatesConnector):  # type: ignore[misc, unused-ignore]
    def _submit_async_write(self, pending: Any) -> None:
        """Write the states of a request that has finished; then its lock is free, for which the reader waits."""
        blocks, size = torch.tensor(pending.block_ids), self._block_size
        slots = (blocks[:, None] * size + torch.arange(size)).flatten()
        assert self._kv_cache is not None
        states = extract_from_kv_cache(self._kv_cache, slots, len(pending.token_ids))
        done: Any = _Done()
        save_file({"hidden_states": states.contiguous()}, pending.filename)
        self._req_copy_events[pending.req_id] = done
        os.close(self._lock_fds.pop(pending.req_id))
