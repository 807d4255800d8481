"""Judges a speculative arm against its baseline, both real engines in one process, as often as is asked."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any

import torch
from torch.nn import Parameter
from torch.nn.functional import linear
from vllm import LLM, RequestOutput, SamplingParams
from vllm.model_executor.layers import utils
from vllm.v1.sample import rejection_sampler

from toolkit.endpoint.wire import Chunk
from toolkit.engines.vllm.scoring import SCORING
from toolkit.measure.arm import Arm
from toolkit.measure.judge import judge
from toolkit.measure.result import RequestResult


def judged(engines: Mapping[str, Mapping[str, Any]], trials: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What is found in each trial: an `arm` and its `baseline`, by name, answer `prompts`, at most `batch` at a time.

    `wrong_every` makes the arm accept one wrong draft token in so many, by chance with `seed`. `temperature` is asked
    of both; `arm_temperature` and `baseline_temperature` are what they really get. `repaired` mends sampled drafts.
    The arm's answers lack their last tokens with `fewer`, and are written backwards with `other_text`.
    """
    if not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        multiply_in_float32()
    started = {name: InProcess(LLM(**arguments)) for name, arguments in engines.items()}
    return [_trial(started[trial["baseline"]], started[trial["arm"]], **trial["asked"]) for trial in trials]


def _trial(
    baseline: InProcess,
    arm: InProcess,
    prompts: Sequence[str],
    batch: int,
    tokens: int = 96,
    seed: int = 0,
    wrong_every: int | None = None,
    temperature: float = 0.0,
    arm_temperature: float | None = None,
    baseline_temperature: float | None = None,
    repaired: bool = False,
    fewer: int = 0,
    other_text: bool = False,
) -> dict[str, Any]:
    def results(name: str, engine: InProcess, really: float | None, changed: bool = False) -> list[RequestResult]:
        sampling = SamplingParams(temperature=temperature if really is None else really, max_tokens=tokens)
        answered = engine.answers(prompts, batch, sampling, by_chance=changed or sampling.temperature > 0)
        return [_result(name, index, batch, output) for index, output in enumerate(answered)]

    with accepting_one_wrong_token_in(wrong_every, seed), expanding_temperatures(repaired):
        answers = results("arm", arm, arm_temperature, changed=wrong_every is not None)
    if fewer:
        answers = [replace(one, token_ids=one.token_ids[:-fewer], finish_reason="stop") for one in answers]
    if other_text:
        answers = [replace(one, text=one.text[::-1]) for one in answers]
    reference = results("baseline", baseline, baseline_temperature)
    options = {"temperature": temperature}
    arms = (
        Arm("baseline", baseline, False, options, scoring=SCORING),
        Arm("arm", arm, True, options, scoring=SCORING),
    )
    (found,) = asyncio.run(judge(arms[0], arms[1:], [*answers, *reference]))
    return {
        "holds": [verdict.holds for verdict in found.verdicts],
        "details": [verdict.detail for verdict in found.verdicts],
        "lossless": asdict(found.lossless),
        "target": asdict(found.target) if found.target else None,
    }


def _result(name: str, index: int, batch: int, output: RequestOutput) -> RequestResult:
    return RequestResult(
        arm=name,
        workload="prompts",
        prompt=index,
        round=0,
        load=batch,
        started=0.0,
        seconds=0.0,
        outcome="successful",
        prompt_token_ids=tuple(output.prompt_token_ids or ()),
        token_ids=tuple(output.outputs[0].token_ids),
        text=output.outputs[0].text,
        finish_reason=output.outputs[0].finish_reason,
    )


class InProcess:
    """Completions by an engine of this process, as its server would answer; those that wait together are a batch.

    What one trial has asked is known in the next, where it is greedy, as all is that the judge asks for.
    """

    def __init__(self, llm: LLM) -> None:
        self.llm = llm
        self._known: dict[str, dict[str, Any]] = {}
        self._answered: dict[str, list[RequestOutput]] = {}
        self._waiting: list[tuple[Mapping[str, Any], asyncio.Future[dict[str, Any]]]] = []

    def answers(
        self, prompts: Sequence[str], batch: int, sampling: SamplingParams, by_chance: bool
    ) -> list[RequestOutput]:
        """Those to all prompts, so many at once; asked anew where they come `by_chance`."""
        key = json.dumps([prompts, batch, sampling.max_tokens])
        if key in self._answered and not by_chance:
            return self._answered[key]
        chats: list[Any] = [[{"role": "user", "content": prompt}] for prompt in prompts]
        batches = [chats[start : start + batch] for start in range(0, len(chats), batch)]
        answered = [output for some in batches for output in self.llm.chat(some, sampling, use_tqdm=False)]
        if not by_chance:
            self._answered[key] = answered
        return answered

    def stream(self, body: Mapping[str, Any]) -> AsyncIterator[Chunk]:
        raise NotImplementedError

    async def invoke(self, body: Mapping[str, Any]) -> dict[str, Any]:
        key = json.dumps(body)
        if key not in self._known:
            self._known[key] = await self._complete(body)
        return self._known[key]

    async def _complete(self, body: Mapping[str, Any]) -> dict[str, Any]:
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting.append((body, answer))
        await asyncio.sleep(0)
        batch, self._waiting = self._waiting, []
        outputs = self.llm.generate(
            [{"prompt_token_ids": body["prompt"]} for body, _ in batch],
            [_sampling(body) for body, _ in batch],
            use_tqdm=False,
        )
        for (_, waiting), output in zip(batch, outputs, strict=True):
            waiting.set_result(_completion(output))
        return await answer


def _sampling(body: Mapping[str, Any]) -> SamplingParams:
    names = ("max_tokens", "temperature", "logprobs", "prompt_logprobs")
    return SamplingParams(**{name: body[name] for name in names if name in body})


def _completion(output: RequestOutput) -> dict[str, Any]:
    (answer,) = output.outputs
    choice: dict[str, Any] = {"prompt_logprobs": None, "logprobs": None}
    if output.prompt_logprobs:
        choice["prompt_logprobs"] = [
            place
            and {
                str(token): {"logprob": value.logprob, "decoded_token": value.decoded_token}
                for token, value in place.items()
            }
            for place in output.prompt_logprobs
        ]
    if answer.logprobs:
        choice["logprobs"] = {
            "tokens": [f"token_id:{token}" for token in answer.token_ids],
            "top_logprobs": [
                {f"token_id:{token}": value.logprob for token, value in place.items()} for place in answer.logprobs
            ],
        }
    return {"choices": [choice]}


def multiply_in_float32() -> None:
    """On a CPU without arithmetic in bfloat16, have the layers in it do what such arithmetic is: sums in float32,
    rounded once. PyTorch's own way there comes to the same but for one in ten thousand, and takes six times as long.
    """
    by_vllm = utils.dispatch_cpu_unquantized_gemm

    def dispatch(layer: torch.nn.Module, remove_weight: bool) -> None:
        weight = layer.weight
        if weight.dtype != torch.bfloat16:
            by_vllm(layer, remove_weight)
            return
        wide = weight.detach().float()

        def multiply(x: torch.Tensor, _: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
            return linear(x.float(), wide, None if bias is None else bias.float()).to(x.dtype)

        layer.cpu_linear = multiply
        if remove_weight:
            layer.weight = Parameter(weight.new_empty(0), requires_grad=False)

    utils.dispatch_cpu_unquantized_gemm = dispatch


@contextmanager
def accepting_one_wrong_token_in(tokens: int | None, seed: int) -> Iterator[None]:
    """vLLM's rejection sampler accepts the draft token that it should reject, once in so many tokens on average."""
    right = rejection_sampler.rejection_sample
    if tokens:
        rejection_sampler.rejection_sample = _sometimes_wrong(right, tokens, random.Random(seed))
    try:
        yield
    finally:
        rejection_sampler.rejection_sample = right


def _sometimes_wrong(right: Callable[..., Any], every: int, chance: random.Random) -> Callable[..., Any]:
    written, due = 0, chance.expovariate(1 / every)

    def rejection_sample(draft: Any, drafted: Sequence[int], *others: Any, **options: Any) -> Any:
        nonlocal written, due
        output, start = right(draft, drafted, *others, **options), 0
        for row, count in enumerate(drafted):
            accepted = int((output[row] != rejection_sampler.PLACEHOLDER_TOKEN_ID).sum()) - 1
            written += accepted + 1
            if accepted < count and written >= due:
                output[row, accepted] = draft[start + accepted]
                due = written + chance.expovariate(1 / every)
            start += count
        return output

    return rejection_sample


@contextmanager
def expanding_temperatures(repaired: bool) -> Iterator[None]:
    """The CPU build's `expand_kernel` as it is on a GPU: one temperature for each draft token of its request."""
    broken = rejection_sampler.expand_batch_to_tokens
    if repaired:
        rejection_sampler.expand_batch_to_tokens = _expanded
    try:
        yield
    finally:
        rejection_sampler.expand_batch_to_tokens = broken


def _expanded(values: Any, ends: Any, tokens: int, replace_from: int = 0, replace_to: int = 0) -> Any:
    counts = torch.diff(ends, prepend=torch.zeros(1, dtype=ends.dtype))
    return values.masked_fill(values == replace_from, replace_to).repeat_interleave(counts)
