"""The target's hidden states from vLLM, as it serves the target: over several GPUs, quantised, with its kernels.

vLLM's own extraction keeps the states of chosen layers beside the KV cache, and its connector writes those of each
request to a file, which is read here and removed. That costs a prefill and one token for each sample.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from toolkit.engines.vllm.job_arguments import job_arguments
from toolkit.errors import PlatformError

if TYPE_CHECKING:
    from torch import Tensor

    from toolkit.training.job import TrainingJob
    from toolkit.training.samples import States

STATES_SINCE = "0.26.0"
"""Versions before tell log-probabilities of a prompt where logits are asked for; those before 0.22 lack functions."""

_METHOD = "extract_hidden_states"
# Behind a sample there is a token that vLLM samples, and one that its extraction "drafts".
_BEHIND = 8
_PROBED = 20


def version() -> str:
    """Name and version of the vLLM that is installed, whatever its distribution is called; empty without one."""
    if find_spec("vllm") is None:
        return ""
    import vllm

    return f"vLLM {vllm.__version__}"


def no_states(job: TrainingJob) -> str:
    """Why this vLLM does not give the job's states; empty if it does."""
    from packaging.version import Version

    name = version()
    if not name:
        return "vLLM is not installed"
    if Version(name.removeprefix("vLLM ")) < Version(STATES_SINCE):
        return f"{name} does not give them; {STATES_SINCE} and newer ones do"
    from pydantic import ValidationError
    from vllm.config import ModelConfig
    from vllm.model_executor.model_loader.utils import get_model_architecture
    from vllm.model_executor.models.interfaces import supports_eagle3

    kind: Any
    try:
        config = ModelConfig(job.target)
        kind, architecture = get_model_architecture(config)
    except ValidationError as error:
        return f"{name} does not read the target: {error.errors()[0]['msg']}"
    except ValueError as error:
        return f"{name} does not read the target: {error}"
    if not supports_eagle3(kind):
        return f"{name} has no interface to the hidden states of {architecture}"
    return f"{name} extracts no hidden states beside MLA's KV cache" if config.use_mla else ""


@dataclass(frozen=True)
class VllmStates:
    """The target in a vLLM that runs; a StateSource. `layers` is how many are read besides the last one."""

    target: str
    engine: Any
    layers: int

    def states(self, sequences: list[Tensor]) -> States:
        """The states of all sequences, one after the other."""
        from toolkit.training.samples import States

        joined, _ = self._read(sequences, scores=None)
        return States(joined[:, : self.layers].flatten(1).contiguous(), joined[:, -1].contiguous())

    def require_exact(self, prompts: Sequence[list[int]]) -> None:
        """Raise UsageError if training computes other logits from the states than vLLM itself, beyond rounding."""
        import torch

        from toolkit.training.exact import Said, require_same_logits

        joined, outputs = self._read([torch.tensor(one) for one in prompts], scores=_PROBED)
        said = Said([], [], [])
        first = 0
        for prompt, output in zip(prompts, outputs, strict=True):
            for position, scores in enumerate(output.prompt_logprobs[1:]):  # what it says of the token behind each
                said.positions.extend([first + position] * len(scores))
                said.tokens.extend(scores)
                said.logits.extend(score.logprob for score in scores.values())
            first += len(prompt)
        require_same_logits(self.target, joined[:, -1], said, self._dtype)

    @property
    def _dtype(self) -> Any:
        return self.engine.llm_engine.model_config.dtype

    def _read(self, sequences: Sequence[Tensor], scores: int | None) -> tuple[Tensor, list[Any]]:
        """The states [tokens, layers, H] of all sequences, in ascending order, and what vLLM returned beside them."""
        import torch
        from vllm import SamplingParams, TokensPrompt
        from vllm.distributed.kv_transfer.kv_connector.v1.example_hidden_states_connector import (
            cleanup_hidden_states,
            load_hidden_states,
        )

        prompts = [TokensPrompt(prompt_token_ids=one.tolist()) for one in sequences]
        settings = SamplingParams(temperature=0, max_tokens=1, detokenize=False, prompt_logprobs=scores)
        found = []
        with _failures("gives no hidden states", "Has the disk of training.states_gb room? The log says more."):
            outputs = self.engine.generate(prompts, settings, use_tqdm=False)
            for output in outputs:
                path = output.kv_transfer_params["hidden_states_path"]
                found.append(load_hidden_states(path)["hidden_states"])
                cleanup_hidden_states(path)
        return torch.cat(found), outputs


@contextmanager
def states_in_vllm(job: TrainingJob, layers: tuple[int, ...]) -> Iterator[VllmStates]:
    """The states of `layers` and of the last one, from vLLM in processes of its own, which end with the context."""
    import torch
    from transformers import AutoConfig
    from vllm import LLM

    config = AutoConfig.from_pretrained(job.target, local_files_only=True)  # nosec B615
    last = config.get_text_config().num_hidden_layers
    with TemporaryDirectory(prefix="states-", dir=job.work) as folder, _longer_than_positions():
        with _failures("does not start with the target", "The log says why. `states: transformers` does without it."):
            engine = LLM(
                **job_arguments(job),
                max_model_len=job.max_length + _BEHIND,
                enable_prefix_caching=False,  # what is in the cache is not computed, and has no states
                logprobs_mode="raw_logits",
                speculative_config={
                    "method": _METHOD,
                    "num_speculative_tokens": 1,
                    "draft_model_config": {"hf_config": {"eagle_aux_hidden_state_layer_ids": sorted({*layers, last})}},
                },
                kv_transfer_config=_connector(folder, on_cpu=not torch.cuda.is_available()),
            )
        try:
            yield VllmStates(job.target, engine, len(set(layers)))
        finally:
            engine.llm_engine.engine_core.shutdown()


@contextmanager
def _failures(what: str, hint: str) -> Iterator[None]:
    """Raise PlatformError for what vLLM raises, and for its files that cannot be read, as on a full disk."""
    from safetensors import SafetensorError
    from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

    try:
        yield
    except (EngineDeadError, EngineGenerateError, SafetensorError, OSError, RuntimeError, ValueError) as error:
        raise PlatformError(f"{version()} {what}: {error}", hint=hint) from error


def _connector(folder: str, *, on_cpu: bool) -> dict[str, Any]:
    own = {"kv_connector": "StatesOnCpu", "kv_connector_module_path": "toolkit.engines.vllm.states_on_cpu"}
    return {
        **(own if on_cpu else {"kv_connector": "ExampleHiddenStatesConnector"}),
        "kv_role": "kv_producer",
        "kv_connector_extra_config": {"shared_storage_path": folder},
    }


@contextmanager
def _longer_than_positions() -> Iterator[None]:
    """Let vLLM take the tokens behind a sample that has all of the target's positions; it computes none of them."""
    name = "VLLM_ALLOW_LONG_MAX_MODEL_LEN"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
