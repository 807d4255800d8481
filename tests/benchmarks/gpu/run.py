"""What only a GPU can show, on any machine with one, vLLM and this package: no AWS, no download.

    python tests/benchmarks/gpu/run.py [--out results.md] [--shapes gpt-oss-20b,qwen3-8b] [--loads 1,16,64]

It prints five tables, with hardware and versions:

- proof: the shipped tiny pair in bfloat16, with and without VLLM_BATCH_INVARIANT=1.
- honesty: what is said of an arm that is the baseline itself (nothing, at any load), and of targets whose weights or
  dtype are others.
- drafters: EAGLE-3 and P-EAGLE heads in the shapes of gpt-oss-20b and Qwen3-8B, all weights random, drafts accepted by
  chance at published acceptance lengths; P-EAGLE over EAGLE-3 beside the published ratios. For each head also what
  another acceptance would give, computed from steps per second, and the acceptance at which it breaks even.
- K by K: one head at several K, with the acceptance length that its published curve gives for each.
- sampler: speedups computed from steps per second at one acceptance against those measured at another.

What it showed is beside this file; no speedup yet. `--rehearse` runs all but the sampler on a CPU with a tiny shape: it
shows that the code works, and nothing about speed. There the engine cannot accept drafts by chance, so speedups are
computed from steps per second. What random weights cannot show: which experts real text needs (they may fall on fewer
or on more), and acceptance itself. Fields of heads that nobody published are assumed, see shapes.json.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import date
from itertools import chain, islice, permutations
from pathlib import Path
from typing import Any, cast

import torch
from safetensors.torch import load_file, save_file
from vllm_server import Engine, NotStarted, engine_name, engine_version, gpu_gibibytes, hardware, serving, write_model

from toolkit.engines.vllm.scoring import SCORING
from toolkit.errors import InvocationError
from toolkit.measure.arm import Arm, Workload, prompts_of
from toolkit.measure.bench import measure, sender
from toolkit.measure.design import Design, Load
from toolkit.measure.measurement import Interval, Speedup
from toolkit.measure.read_workloads import read_workloads
from toolkit.measure.result import RequestResult
from toolkit.measure.run import run
from toolkit.measure.statistics import pairs_of, speedup
from toolkit.measure.what_if import other_acceptance, predict_speedup
from toolkit.version import __version__

HERE = Path(__file__).parent
TINY = HERE.parents[2] / "recipes" / "tiny"
PROMPT_TOKENS = 128
PROMPTS = 64
GIB = 1 << 30
# Of Qwen3-8B: weights, a head, the cache, graphs.
SERVER_GIBIBYTES = 26


@dataclass(frozen=True)
class Published:
    """A workload's acceptance lengths, and P-EAGLE over EAGLE-3 by concurrency where that is published."""

    workload: str
    eagle3: float
    p_eagle: float
    ratios: dict[int, float] = field(default_factory=dict)


K = {"eagle3": 3, "p-eagle": 7}
# vLLM's blog of 2026-03-13 (1 x B200); for Qwen3-8B only the P-EAGLE head's card is published, EAGLE-3 is assumed.
PUBLISHED = {
    "gpt-oss-20b": (
        Published("MT-Bench", 2.70, 3.70, {1: 1.55, 16: 1.27, 64: 1.05}),
        Published("HumanEval", 2.65, 3.94, {1: 1.55, 16: 1.31, 64: 1.23}),
        Published("SPEED-Bench", 2.24, 3.38, {1: 1.69, 16: 1.40, 64: 1.25}),
    ),
    "qwen3-8b": (Published("HumanEval", 2.5, 3.5),),
    "tiny": (Published("rehearsal", 2.0, 3.0),),
}
SAMPLER = (2.0, 4.0)
# P-EAGLE for Qwen3-8B on HumanEval by position (card of RedHatAI/Qwen3-8B-speculator.peagle).
CURVE = (0.813, 0.59, 0.411, 0.279, 0.188, 0.128, 0.089)


@dataclass(frozen=True)
class Head:
    """A drafter at one K. On a GPU its drafts are accepted by chance, `length` tokens for each target step."""

    kind: str
    k: int
    length: float

    def __str__(self) -> str:
        return f"{self.kind} K={self.k} at {self.length:.2f}"


@dataclass(frozen=True)
class Settings:
    """What differs between a GPU and the rehearsal. `together` servers run at a time, the baseline among them."""

    shapes: tuple[str, ...]
    loads: tuple[int, ...]
    ks: tuple[int, ...]
    seconds: float
    tokens: int
    flags: dict[str, Any]
    together: int
    on_gpu: bool
    logs: Path
    requests: int | None = None


def gpu(args: argparse.Namespace, logs: Path) -> Settings:
    """Servers start side by side: the cache is given in bytes, since none can measure what is free for it."""
    flags = {
        "dtype": "bfloat16",
        "max-model-len": 1024,
        "max-num-seqs": 64,
        "gpu-memory-utilization": 0.1,
        "kv-cache-memory-bytes": 6 * GIB,
    }
    loads = tuple(map(int, args.loads.split(",")))
    together = int(gpu_gibibytes() // SERVER_GIBIBYTES)
    return Settings(tuple(args.shapes.split(",")), loads, (1, 3, 5, 7), args.seconds, 192, flags, together, True, logs)


def rehearsal(args: argparse.Namespace, logs: Path) -> Settings:
    """A tiny shape on a CPU, as short as it gets."""
    flags = {
        "dtype": "bfloat16",
        "max-model-len": 1024,
        "max-num-seqs": 4,
        "max-num-batched-tokens": 2048,
        "enforce-eager": True,
        "kv-cache-memory-bytes": GIB // 4,
    }
    return Settings(("tiny",), (1, 2), (3,), args.seconds, 48, flags, 2, False, logs, requests=8)


async def proof(settings: Settings) -> list[str]:
    """The lossless verdict of the tiny pair, and how many answers are the baseline's to the last token."""
    rows = ["| VLLM_BATCH_INVARIANT | lossless | same answers | detail |", "|---|---|---|---|"]
    if not settings.on_gpu:
        rows.append("| 1 | skipped: batch invariance is for GPUs | | |")
    return rows + list(await asyncio.gather(*(_proved(settings, how) for how in ("0", "1")[: 1 + settings.on_gpu])))


async def _proved(settings: Settings, invariant: str) -> str:
    head = {"method": "eagle3", "model": str(TINY / "models/p-eagle"), "parallel_drafting": True}
    baseline = Engine(TINY / "models/target", settings.flags, env={"VLLM_BATCH_INVARIANT": invariant})
    engines = {"baseline": baseline, "p-eagle": replace(baseline, speculation={**head, "num_speculative_tokens": 7})}
    try:
        async with started(settings, engines, f"proof-{invariant}", chat=True) as arms:
            prompts = [TINY / "prompts/structured.jsonl", TINY / "prompts/open-ended.jsonl"]
            workloads = [workload for path in prompts for workload in read_workloads(str(path))]
            report = await measure(_design(settings, arms, workloads), "proof")
    except (NotStarted, InvocationError) as error:
        return f"| {invariant} | does not run | | {error} |"
    verdict = next(item for item in report.verdicts if item.claim == "lossless")
    shown = ", ".join(f"{row.identical:.0%}" for row in report.arms if row.identical is not None)
    return f"| {invariant} | {_WORDS[verdict.holds]} | {shown} | {verdict.detail} |"


_WORDS = {True: "yes", False: "NO", None: "not shown"}


async def honesty(settings: Settings) -> list[str]:
    """Speedups and the same-target verdict of the tiny target against itself and against changed copies."""
    rows = ["| arm | same target | load | speedup | pays |", "|---|---|---|---|---|"]
    baseline = Engine(TINY / "models/target", settings.flags)
    others = {
        "the same": baseline,
        "weights off by 0.3 %": replace(baseline, model=_off(settings.logs / "off-0.3", 0.003)),
        "weights off by 1 %": replace(baseline, model=_off(settings.logs / "off-1", 0.01)),
        "another dtype": replace(baseline, flags={**settings.flags, "dtype": "float32"}),
    }
    at_once = settings.together - 1
    for first in range(0, len(others), at_once):
        batch = dict(islice(others.items(), first, first + at_once))
        try:
            async with started(settings, {"baseline": baseline, **batch}, f"honesty-{first}", chat=True) as arms:
                workload = read_workloads(str(TINY / "prompts/structured.jsonl"))
                report = await measure(_design(settings, arms, workload), "honesty")
        except (NotStarted, InvocationError) as error:
            rows += (f"| {name} | does not run: {error} | | | |" for name in batch)
            continue
        same = [item for item in report.verdicts if item.claim == "same-target"]
        for name, verdict in zip(batch, same, strict=True):
            rows += (
                f"| {name} | {_WORDS[verdict.holds]} | {item.concurrency} | {_shown(item)} | {_WORDS[item.pays]} |"
                for item in report.speedups
                if item.arm == name
            )
    return rows


def _off(folder: Path, share: float) -> Path:
    """A copy of the tiny target whose layers' weights are off by that share, at random."""
    torch.manual_seed(0)
    shutil.copytree(TINY / "models/target", folder)
    tensors = load_file(folder / "model.safetensors")
    moved = {
        name: weight * (1 + share * torch.randn_like(weight)) for name, weight in tensors.items() if "_proj" in name
    }
    save_file(tensors | moved, folder / "model.safetensors", {"format": "pt"})
    return folder


@asynccontextmanager
async def started(
    settings: Settings, engines: Mapping[str, Engine], name: str, chat: bool
) -> AsyncIterator[dict[str, Arm]]:
    """An arm for each engine, all started at once and stopped at the end. Raises NotStarted if one does not start."""

    async def start(arm: str, engine: Engine) -> Arm:
        log = settings.logs / f"{name}-{arm.replace(' ', '-')}.log"
        began = time.monotonic()
        connection = await stack.enter_async_context(serving(engine, log, chat))
        print(f"{name}: {arm} started in {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
        return Arm(arm, connection, engine.speculation is not None, scoring=SCORING)

    async with AsyncExitStack() as stack:
        arms = await asyncio.gather(*(start(*item) for item in engines.items()), return_exceptions=True)
        for arm in arms:
            if isinstance(arm, BaseException):
                raise arm
        yield dict(zip(engines, cast(list[Arm], arms), strict=True))


def _design(settings: Settings, arms: Mapping[str, Arm], workloads: Sequence[Workload]) -> Design:
    return Design(
        arms=tuple(arm for name, arm in arms.items() if name != "baseline"),
        baseline=arms["baseline"],
        workloads=tuple(workloads),
        loads=tuple(map(Load, settings.loads)),
        seconds=settings.seconds * len(arms),
        requests=settings.requests,
        max_tokens=settings.tokens,
    )


@dataclass(frozen=True)
class Measured:
    """A head's results against the baseline of random weights."""

    arm: Arm
    results: Sequence[RequestResult]

    def at_length(self, length: float, load: int) -> Interval | None:
        """Its speedup at an acceptance length, computed from its steps per second."""
        return predict_speedup([item for item in self.results if item.load == load], self.arm.name, "baseline", length)

    def speedup(self, load: int) -> Interval | None:
        """Its speedup as it was."""
        return speedup(pairs_of([item for item in self.results if item.load == load], self.arm.name, "baseline"))


Heads = Mapping[Head, "Measured | NotStarted | InvocationError"]


async def batches(settings: Settings, shape: str, heads: Sequence[Head]) -> AsyncIterator[Heads]:
    """Each head measured against the shape's baseline, or why it was not; as many side by side as the GPU holds."""
    at_once = settings.together - 1
    for first in range(0, len(heads), at_once):
        batch = heads[first : first + at_once]
        try:
            measured = await _batch(settings, shape, batch, f"{shape}-{first}")
        except (NotStarted, InvocationError) as error:
            yield dict.fromkeys(batch, error)
        else:
            yield dict(zip(batch, measured, strict=True))


async def _batch(settings: Settings, shape: str, heads: Sequence[Head], name: str) -> list[Measured]:
    configs = json.loads((HERE / "shapes.json").read_text())["shapes"][shape]
    vocabulary = configs["target"]["vocab_size"]
    target = write_model(settings.logs / shape / "target", configs["target"], vocabulary)
    baseline = Engine(target, {**settings.flags, "load-format": "dummy"})
    engines = {"baseline": baseline}
    for head in heads:
        drafter = write_model(settings.logs / shape / head.kind, configs["heads"][head.kind])
        engines[str(head)] = _speculating(settings, baseline, head, drafter)
    async with started(settings, engines, name, chat=False) as arms:
        measured = await run(_design(settings, arms, [random_prompts(vocabulary)]), sender())
    return [Measured(arms[str(head)], measured.results) for head in heads]


def _speculating(settings: Settings, engine: Engine, head: Head, drafter: Path) -> Engine:
    parallel = {"parallel_drafting": True} if head.kind == "p-eagle" else {}
    chance = {"rejection_sample_method": "synthetic", "synthetic_acceptance_length": head.length}
    speculation = {"method": "eagle3", "model": str(drafter), "num_speculative_tokens": head.k, **parallel}
    env = {"VLLM_USE_V2_MODEL_RUNNER": "0"} if parallel else {}
    return replace(engine, speculation={**speculation, **(chance if settings.on_gpu else {})}, env=env)


def random_prompts(tokens: int) -> Workload:
    """Prompts of random words of the made-up tokenizer, each answered with all the tokens that are allowed."""
    pick = random.Random(0)
    texts = (" ".join(f"t{pick.randrange(tokens)}" for _ in range(PROMPT_TOKENS)) for _ in range(PROMPTS))
    return Workload("random", prompts_of(*texts), fixed_length=True)


def drafters(settings: Settings, shape: str, heads: Heads) -> list[str]:
    """P-EAGLE over EAGLE-3 at published acceptance lengths, and each head's break-even."""
    rows = [
        "| shape | workload | load | EAGLE-3 | P-EAGLE | P-EAGLE / EAGLE-3 | published |",
        "|---|---|---|---|---|---|---|",
    ]
    even = ["", "| shape | head | load | breaks even at acceptance length |", "|---|---|---|---|"]
    eagle3, p_eagle = map(heads.__getitem__, of_drafters(settings, shape))
    if not (isinstance(eagle3, Measured) and isinstance(p_eagle, Measured)):
        error = p_eagle if isinstance(eagle3, Measured) else eagle3
        return [*rows, f"| {shape} | does not run: {error} | | | | | |"]
    for item in PUBLISHED[shape]:
        for load in settings.loads:
            below, above = eagle3.at_length(item.eagle3, load), p_eagle.at_length(item.p_eagle, load)
            ratio = _quotient(above, below) if above and below else None
            known = f"{item.ratios[load]:.2f}" if load in item.ratios else ""
            shown = f"{_shown(below)} | {_shown(above)} | {_shown(ratio)} | {known}"
            rows.append(f"| {shape} | {item.workload} | {load} | {shown} |")
    for head in (eagle3, p_eagle):
        for row in other_acceptance(head.results, [head.arm], "baseline", ()).break_even:
            at = f"{row.acceptance_length:.2f}" if row.acceptance_length else "none"
            even.append(f"| {shape} | {row.arm} | {row.concurrency} | {at} |")
    return rows + even


def of_drafters(settings: Settings, shape: str) -> list[Head]:
    """The heads that `drafters` compares."""
    known = PUBLISHED[shape][0]
    return [Head("eagle3", K["eagle3"], known.eagle3), Head("p-eagle", K["p-eagle"], known.p_eagle)]


def _quotient(above: Interval, below: Interval) -> Interval:
    """Both have the same baseline requests, so this interval is rather too wide: the variances do not add up."""
    reach = math.hypot(math.log(above.high / above.ratio), math.log(below.high / below.ratio))
    ratio = above.ratio / below.ratio
    return Interval(ratio, ratio * math.exp(-reach), ratio * math.exp(reach))


def _shown(found: Interval | Speedup | None) -> str:
    return f"{found.ratio:.2f} ({found.low:.2f}-{found.high:.2f})" if found else "not measured"


def k_by_k(settings: Settings, shape: str, heads: Heads) -> list[str]:
    """P-EAGLE at several K, each with the acceptance length of the published curve."""
    rows = ["| shape | K | acceptance length | load | speedup |", "|---|---|---|---|---|"]
    for head in of_ks(settings, shape):
        at, found = f"| {shape} | {head.k} | {head.length:.2f}", heads[head]
        if isinstance(found, Measured):
            rows += (f"{at} | {load} | {_shown(found.at_length(head.length, load))} |" for load in settings.loads)
        else:
            rows.append(f"{at} | does not run: {found} | |")
    return rows


def of_ks(settings: Settings, shape: str) -> list[Head]:
    """The heads of `k_by_k`: of the last shape, see CURVE."""
    if shape != settings.shapes[-1]:
        return []
    return [Head("p-eagle", k, round(1 + sum(CURVE[:k]), 2)) for k in settings.ks]


def sampler(settings: Settings, shape: str, heads: Heads) -> list[str]:
    """Whether steps per second give what the engine does at another acceptance."""
    rows = ["| shape | measured at | steps/s of | load | computed | measured |", "|---|---|---|---|---|---|"]
    two = of_sampler(settings, shape)
    for source, other in permutations(two, 2):
        by, real = heads[source], heads[other]
        if not (isinstance(by, Measured) and isinstance(real, Measured)):
            return [*rows, f"| {shape} | does not run: {real if isinstance(by, Measured) else by} | | | | |"]
        for load in settings.loads:
            computed, measured = by.at_length(other.length, load), real.speedup(load)
            rows.append(
                f"| {shape} | {other.length} | {source.length} | {load} | {_shown(computed)} | {_shown(measured)} |"
            )
    return rows


def of_sampler(settings: Settings, shape: str) -> list[Head]:
    """The heads of `sampler`. A CPU build accepts no drafts by chance."""
    if not settings.on_gpu or shape != settings.shapes[-1]:
        return []
    return [Head("p-eagle", K["p-eagle"], length) for length in SAMPLER]


PARTS = {"drafters": (of_drafters, drafters), "k-by-k": (of_ks, k_by_k), "sampler": (of_sampler, sampler)}


async def tables(settings: Settings, names: Sequence[str]) -> AsyncIterator[str]:
    """The tables of the parts, each when it is measured."""
    for name, table in (("proof", proof), ("honesty", honesty)):
        if name in names:
            yield "\n".join([f"## {name}", "", *await table(settings), ""])
    parts = {name: part for name, part in PARTS.items() if name in names}
    for shape in settings.shapes:
        wanted = {name: heads for name, (heads_for, _) in parts.items() if (heads := heads_for(settings, shape))}
        measured: dict[Head, Measured | NotStarted | InvocationError] = {}
        async for batch in batches(settings, shape, list(dict.fromkeys(chain.from_iterable(wanted.values())))):
            measured |= batch
            for name in [name for name, heads in wanted.items() if measured.keys() >= set(heads)]:
                del wanted[name]
                yield "\n".join([f"## {name}: {shape}", "", *parts[name][1](settings, shape, measured), ""])


def main() -> None:
    """Run all parts, print their tables, and keep them in a file if that is asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--rehearse", action="store_true", help="on a CPU, with a tiny shape: shows nothing about speed"
    )
    parser.add_argument("--shapes", default="gpt-oss-20b,qwen3-8b", help="shapes of shapes.json, separated by commas")
    parser.add_argument("--loads", default="1,16,64", help="concurrent requests, separated by commas")
    parser.add_argument("--seconds", type=float, default=120, help="of measuring, for each server; default: 120")
    parser.add_argument(
        "--parts", default=",".join(["proof", "honesty", *PARTS]), help="separated by commas; default: all"
    )
    parser.add_argument("--logs", type=Path, help="keep the engines' logs in this folder")
    parser.add_argument("--out", type=Path, help="write the tables to this file, too")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="toolkit-gpu-") as folder:
        logs = args.logs or Path(folder)
        logs.mkdir(parents=True, exist_ok=True)
        settings = (rehearsal if args.rehearse else gpu)(args, logs)
        if args.rehearse:
            os.environ.setdefault("OMP_NUM_THREADS", "1")  # the servers share the cores
        kind = "REHEARSAL on a CPU: no figure below means anything" if args.rehearse else "Measured"
        text = f"{kind}. {hardware()}; {engine_name()} {engine_version()}, toolkit {__version__}; {date.today()}\n"
        print(text, flush=True)
        asyncio.run(_print(settings, args, text))


async def _print(settings: Settings, args: argparse.Namespace, text: str) -> None:
    async for table in tables(settings, args.parts.split(",")):
        print(table, flush=True)
        text += f"\n{table}"
        if args.out:  # each time: a run may be cut short
            args.out.write_text(text)


if __name__ == "__main__":
    main()
