"""What only a GPU can show, on any machine with one, vLLM and this package: no AWS, no download.

    python tests/benchmarks/gpu/run.py [--out results.md] [--shapes gpt-oss-20b,qwen3-8b] [--loads 1,16,64]

It prints four tables, with hardware and versions:

- proof: the shipped tiny pair in bfloat16, with and without VLLM_BATCH_INVARIANT=1.
- drafters: EAGLE-3 and P-EAGLE heads in the shapes of gpt-oss-20b and Qwen3-8B, all weights random, drafts accepted by
  chance at published acceptance lengths; P-EAGLE over EAGLE-3 beside the published ratios. For each head also what
  another acceptance would give, computed from steps per second, and the acceptance at which it breaks even.
- K by K: one head at several K, with the acceptance length that its published curve gives for each.
- sampler: speedups computed from steps per second at one acceptance against those measured at another.

NOT PROVEN: this has never run on a GPU. `--rehearse` runs all of it on a CPU with a tiny shape: it shows that the code
works, and nothing about speed. There the engine cannot accept drafts by chance, so speedups are computed from steps per
second. What random weights cannot show: which experts real text needs (they may fall on fewer or on more), and
acceptance itself. Fields of heads that nobody published are assumed, see shapes.json.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import random
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import date
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import Any

from vllm_server import Engine, NotStarted, hardware, serving, write_model

from toolkit.engines.vllm.scoring import SCORING
from toolkit.errors import InvocationError
from toolkit.measure.arm import Arm, Workload, prompts_of
from toolkit.measure.bench import measure, sender
from toolkit.measure.design import Design, Load
from toolkit.measure.measurement import Interval
from toolkit.measure.read_workloads import read_workloads
from toolkit.measure.report import BenchReport
from toolkit.measure.result import RequestResult
from toolkit.measure.run import run
from toolkit.measure.statistics import pairs_of, speedup
from toolkit.measure.what_if import other_acceptance, predict_speedup
from toolkit.version import __version__

HERE = Path(__file__).parent
TINY = HERE.parents[2] / "recipes" / "tiny"
PROMPT_TOKENS = 256
PROMPTS = 64


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
class Settings:
    """What differs between a GPU and the rehearsal."""

    shapes: tuple[str, ...]
    loads: tuple[int, ...]
    ks: tuple[int, ...]
    seconds: float
    tokens: int
    flags: dict[str, Any]
    on_gpu: bool
    logs: Path
    requests: int | None = None


def gpu(args: argparse.Namespace, logs: Path) -> Settings:
    """Both servers share one GPU, so each takes less than half of its memory."""
    flags = {"dtype": "bfloat16", "max-model-len": 4096, "max-num-seqs": 128, "gpu-memory-utilization": 0.44}
    loads = tuple(map(int, args.loads.split(",")))
    return Settings(tuple(args.shapes.split(",")), loads, (1, 3, 5, 7), args.seconds, 512, flags, True, logs)


def rehearsal(args: argparse.Namespace, logs: Path) -> Settings:
    """A tiny shape on a CPU, as short as it gets."""
    flags = {
        "dtype": "bfloat16",
        "max-model-len": 1024,
        "max-num-seqs": 4,
        "max-num-batched-tokens": 2048,
        "enforce-eager": True,
        "kv-cache-memory-bytes": 268435456,
    }
    return Settings(("tiny",), (1, 2), (3,), args.seconds, 48, flags, False, logs, requests=4)


async def proof(settings: Settings) -> list[str]:
    """The lossless verdict of the tiny pair, and how many answers are the baseline's to the last token."""
    rows = ["| VLLM_BATCH_INVARIANT | lossless | same answers | detail |", "|---|---|---|---|"]
    if not settings.on_gpu:
        rows.append("| 1 | skipped: batch invariance is for GPUs | | |")
    for invariant in ("0", "1") if settings.on_gpu else ("0",):
        env = {"VLLM_BATCH_INVARIANT": invariant}
        head = {"method": "eagle3", "model": str(TINY / "models/p-eagle"), "parallel_drafting": True}
        flags = {**settings.flags, "max-model-len": 1024}
        baseline = Engine(TINY / "models/target", flags, env=env)
        pair = (baseline, replace(baseline, speculation={**head, "num_speculative_tokens": 7}))
        try:
            report = await _proved(settings, pair, f"proof-{invariant}")
        except (NotStarted, InvocationError) as error:
            rows.append(f"| {invariant} | does not run | | {error} |")
            continue
        verdict = next(item for item in report.verdicts if item.claim == "lossless")
        same = [row.identical for row in report.arms if row.identical is not None]
        shown = ", ".join(f"{share:.0%}" for share in same)
        rows.append(f"| {invariant} | {_WORDS[verdict.holds]} | {shown} | {verdict.detail} |")
    return rows


_WORDS = {True: "yes", False: "NO", None: "not shown"}


async def _proved(settings: Settings, pair: Sequence[Engine], name: str) -> BenchReport:
    async with AsyncExitStack() as stack:
        arms = await _arms(stack, settings, pair, name, chat=True)
        design = Design(
            arms=arms[1:],
            baseline=arms[0],
            workloads=tuple(workload for path in _prompts() for workload in read_workloads(path)),
            loads=tuple(map(Load, settings.loads)),
            seconds=settings.seconds,
            requests=settings.requests,
            max_tokens=settings.tokens,
        )
        return await measure(design, name)


def _prompts() -> Iterator[str]:
    yield str(TINY / "prompts/structured.jsonl")
    yield str(TINY / "prompts/open-ended.jsonl")


async def _arms(
    stack: AsyncExitStack, settings: Settings, engines: Sequence[Engine], name: str, chat: bool
) -> tuple[Arm, ...]:
    """The baseline and its arms, started one after the other: each measures how much memory is free."""
    arms = []
    for number, engine in enumerate(engines):
        arm = "baseline" if engine.speculation is None else name
        log = settings.logs / f"{name}-{number}.log"
        arms.append(
            Arm(arm, await stack.enter_async_context(serving(engine, log, chat)), arm != "baseline", scoring=SCORING)
        )
    return tuple(arms)


@dataclass(frozen=True)
class Tried:
    """A head at one K, and its results against the baseline of random weights."""

    arm: Arm
    results: Sequence[RequestResult]

    def speedup(self, length: float, load: int) -> Interval | None:
        """Its speedup at an acceptance length."""
        return predict_speedup([item for item in self.results if item.load == load], self.arm.name, "baseline", length)

    def measured(self, load: int) -> Interval | None:
        """Its speedup as it was."""
        return speedup(pairs_of([item for item in self.results if item.load == load], self.arm.name, "baseline"))


@dataclass(frozen=True)
class Shape:
    """A target of random weights that is served as the baseline, for all its heads."""

    name: str
    settings: Settings
    engine: Engine
    baseline: Arm
    configs: dict[str, Any]

    async def tried(self, head: str, k: int, length: float) -> Tried:
        """Measure a head with random weights; on a GPU drafts are accepted by chance."""
        drafter = write_model(self.settings.logs / self.name / head, self.configs["heads"][head])
        parallel = {"parallel_drafting": True} if head == "p-eagle" else {}
        chance = {"rejection_sample_method": "synthetic", "synthetic_acceptance_length": length}
        speculation = {"method": "eagle3", "model": str(drafter), "num_speculative_tokens": k, **parallel}
        env = {"VLLM_USE_V2_MODEL_RUNNER": "0"} if parallel else {}
        engine = self.engine.edit(speculation={**speculation, **(chance if self.settings.on_gpu else {})}, env=env)
        async with AsyncExitStack() as stack:
            (arm,) = await _arms(stack, self.settings, [engine], f"{self.name}-{head}-k{k}", chat=False)
            design = Design(
                arms=(arm,),
                baseline=self.baseline,
                workloads=(random_prompts(self.configs["target"]["vocab_size"]),),
                loads=tuple(map(Load, self.settings.loads)),
                seconds=self.settings.seconds,
                requests=self.settings.requests,
                max_tokens=self.settings.tokens,
            )
            return Tried(arm, (await run(design, sender())).results)


@asynccontextmanager
async def served(settings: Settings, shape: str) -> AsyncIterator[Shape]:
    """The shape's target, while the block runs. Raises NotStarted."""
    configs = json.loads((HERE / "shapes.json").read_text())["shapes"][shape]
    target = write_model(settings.logs / shape / "target", configs["target"], configs["target"]["vocab_size"])
    engine = Engine(target, {**settings.flags, "load-format": "dummy"})
    async with AsyncExitStack() as stack:
        (baseline,) = await _arms(stack, settings, [engine], shape, chat=False)
        yield Shape(shape, settings, engine, baseline, configs)


def random_prompts(tokens: int) -> Workload:
    """Prompts of random words of the made-up tokenizer, each answered with all the tokens that are allowed."""
    pick = random.Random(0)
    texts = (" ".join(f"t{pick.randrange(tokens)}" for _ in range(PROMPT_TOKENS)) for _ in range(PROMPTS))
    return Workload("random", prompts_of(*texts), fixed_length=True)


async def drafters(settings: Settings) -> list[str]:
    """P-EAGLE over EAGLE-3 at published acceptance lengths, and each head's break-even."""
    rows = [
        "| shape | workload | load | EAGLE-3 | P-EAGLE | P-EAGLE / EAGLE-3 | published |",
        "|---|---|---|---|---|---|---|",
    ]
    even = ["| shape, head, K | load | breaks even at acceptance length |", "|---|---|---|"]
    for shape in settings.shapes:
        known = PUBLISHED[shape]
        try:
            async with served(settings, shape) as target:
                heads = {
                    head: await target.tried(head, K[head], getattr(known[0], head.replace("-", "_"))) for head in K
                }
        except (NotStarted, InvocationError) as error:
            rows.append(f"| {shape} | does not run: {error} | | | | | |")
            continue
        for item in known:
            rows += (_compared(shape, item, load, heads) for load in settings.loads)
        even += (row for found in heads.values() for row in _even(found))
    return [*rows, "", *even]


def _compared(shape: str, item: Published, load: int, heads: dict[str, Tried]) -> str:
    eagle3 = heads["eagle3"].speedup(item.eagle3, load)
    p_eagle = heads["p-eagle"].speedup(item.p_eagle, load)
    ratio = _quotient(p_eagle, eagle3) if p_eagle and eagle3 else None
    published = f"{item.ratios[load]:.2f}" if load in item.ratios else ""
    return (
        f"| {shape} | {item.workload} | {load} | {_shown(eagle3)} | {_shown(p_eagle)} | {_shown(ratio)} | {published} |"
    )


def _quotient(above: Interval, below: Interval) -> Interval:
    """Both have their own baseline requests, so the variances of the logarithms add up."""
    reach = math.hypot(math.log(above.high / above.ratio), math.log(below.high / below.ratio))
    ratio = above.ratio / below.ratio
    return Interval(ratio, ratio * math.exp(-reach), ratio * math.exp(reach))


def _shown(found: Interval | None) -> str:
    return f"{found.ratio:.2f} ({found.low:.2f}-{found.high:.2f})" if found else "not measured"


def _even(found: Tried) -> Iterator[str]:
    for row in other_acceptance(found.results, [found.arm], "baseline", ()).break_even:
        at = f"{row.acceptance_length:.2f}" if row.acceptance_length else "none"
        yield f"| {row.arm} | {row.concurrency} | {at} |"


async def sampler(settings: Settings) -> list[str]:
    """Whether steps per second give what the engine does at another acceptance."""
    rows = ["| shape | measured at | steps/s of | load | computed | measured |", "|---|---|---|---|---|---|"]
    shape = settings.shapes[-1]
    try:
        async with served(settings, shape) as target:
            low, high = [await target.tried("p-eagle", K["p-eagle"], length) for length in SAMPLER]
    except (NotStarted, InvocationError) as error:
        return [*rows, f"| {shape} | does not run: {error} | | | | |"]
    for source, of, other, length in ((low, SAMPLER[0], high, SAMPLER[1]), (high, SAMPLER[1], low, SAMPLER[0])):
        for load in settings.loads:
            computed, measured = source.speedup(length, load), other.measured(load)
            rows.append(f"| {shape} | {length} | {of} | {load} | {_shown(computed)} | {_shown(measured)} |")
    return rows


async def k_by_k(settings: Settings) -> list[str]:
    """P-EAGLE at several K, each with the acceptance length of the published curve."""
    rows = ["| shape | K | acceptance length | load | speedup |", "|---|---|---|---|---|"]
    shape = settings.shapes[-1]
    try:
        async with served(settings, shape) as target:
            for k in settings.ks:
                rows += await _at_k(target, k)
    except NotStarted as error:
        rows.append(f"| {shape} | | does not run: {error} | | |")
    return rows


async def _at_k(target: Shape, k: int) -> list[str]:
    length = 1 + sum(CURVE[:k])
    try:
        found = await target.tried("p-eagle", k, length)
    except (NotStarted, InvocationError) as error:
        return [f"| {target.name} | {k} | does not run: {error} | | |"]
    at = f"| {target.name} | {k} | {length:.2f}"
    return [f"{at} | {load} | {_shown(found.speedup(length, load))} |" for load in target.settings.loads]


def main() -> None:
    """Run all parts, print their tables, and keep them in a file if that is asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--rehearse", action="store_true", help="on a CPU, with a tiny shape: shows nothing about speed"
    )
    parser.add_argument("--shapes", default="gpt-oss-20b,qwen3-8b", help="shapes of shapes.json, separated by commas")
    parser.add_argument("--loads", default="1,16,64", help="concurrent requests, separated by commas")
    parser.add_argument("--seconds", type=float, default=120, help="of measuring, for each arm; default: 120")
    parser.add_argument("--only", choices=["proof", "drafters", "k-by-k", "sampler"], help="one of the parts")
    parser.add_argument("--logs", type=Path, help="keep the engines' logs in this folder")
    parser.add_argument("--out", type=Path, help="write the tables to this file, too")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="toolkit-gpu-") as folder:
        logs = args.logs or Path(folder)
        logs.mkdir(parents=True, exist_ok=True)
        settings = (rehearsal if args.rehearse else gpu)(args, logs)
        parts = {"proof": proof, "drafters": drafters, "k-by-k": k_by_k, "sampler": sampler}
        if args.rehearse:
            os.environ.setdefault("OMP_NUM_THREADS", "1")  # two servers share the cores
            del parts["sampler"]
        kind = "REHEARSAL on a CPU: no figure below means anything" if args.rehearse else "Measured"
        engine, *_ = packages_distributions()["vllm"]  # `vllm`, or a build of another name
        versions = f"{engine} {version(engine)}, toolkit {__version__}"
        text = f"{kind}. {hardware()}; {versions}; {date.today()}\n"
        print(text, flush=True)
        for name, part in parts.items():
            if args.only in (None, name):
                table = "\n".join([f"## {name}", "", *asyncio.run(part(settings)), ""])
                print(table, flush=True)
                text += f"\n{table}"
    if args.out:
        args.out.write_text(text)


if __name__ == "__main__":
    main()
