"""Our clocks beside those of `vllm bench serve`, guidellm and AIPerf: the same endpoint and prompts, by turns.

The endpoints: one that sends by a schedule, and a real vLLM with the tiny pair. The clients are not among our
dependencies: OTHER_CLIENTS names the `bin` of an environment with vllm, pandas, guidellm and aiperf; ROUNDS is how
often each client is asked (2). Prints a table of medians over the rounds, how far the rounds differ, and each one's
ratio to ours; asserts nothing about time.

TTFT is not the same everywhere. Ours begins when the request is written to an open connection, and ends when the bytes
of the first token are read from the socket. `vllm bench serve` begins before its HTTP library makes the request (and
connects, if none of its connections is free), and ends when its program has come to parse the first event. The row
"from the call" counts like that in our process: what lies between it and ours is the client's own time.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

import aiohttp
import httpx
import pytest
from streaming_process import process_of
from streaming_server import DONE, Answer, Served, document, event

from toolkit.measure.arm import Arm, Workload
from toolkit.measure.connection import connect_url
from toolkit.measure.load import Ask, Timing, closed_loop
from toolkit.recipe.prompts import Prompt

TINY = Path(__file__).parents[2] / "recipes" / "tiny"
TARGET = TINY / "models" / "target"
PROMPTS = [json.loads(line)["prompt"] for line in (TINY / "prompts" / "structured.jsonl").read_text().splitlines()]
TOKENS = 96
ROUNDS = int(os.environ.get("ROUNDS", "2"))
Figures = Mapping[str, float]


class Load(NamedTuple):
    concurrency: int
    requests: int


LOADS = (Load(1, 24), Load(16, 96), Load(64, 384))
# The command `vllm` asks for a distribution of that name, which the build for CPUs is not.
BENCH = """
from argparse import ArgumentParser
from vllm.benchmarks.serve import add_cli_args, main
parser = ArgumentParser()
add_cli_args(parser)
main(parser.parse_args())
"""


@pytest.mark.serving
@pytest.mark.timeout(3600)
@pytest.mark.skipif("OTHER_CLIENTS" not in os.environ, reason="OTHER_CLIENTS is not set")
@pytest.mark.parametrize("kind", ["scheduled", "vllm"])
def test_medians_agree(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clients: dict[str, Callable[[str, Load], Figures]] = {
        "ours": ours,
        "vllm bench serve": lambda url, load: vllm_bench(url, load, tmp_path),
        "guidellm": lambda url, load: guidellm(url, load, tmp_path),
        "AIPerf": lambda url, load: aiperf(url, load, tmp_path),
        "from the call": from_the_call,
    }
    with scheduled() if kind == "scheduled" else vllm(tmp_path) as url:
        for load in LOADS:
            found: dict[str, list[Figures]] = {name: [] for name in clients}
            ours(url, load)  # warms up
            for _ in range(ROUNDS):
                for name, client in clients.items():
                    found[name].append(client(url, load))
            with capsys.disabled():
                print(_table(kind, load, found), flush=True)


def _table(kind: str, load: Load, found: Mapping[str, list[Figures]]) -> str:
    lines = [
        f"\n{kind}: {ROUNDS} x {load.requests} requests, {load.concurrency} at a time; medians in ms, tokens/s;"
        f" load of the machine {os.getloadavg()[0]:.1f}"
    ]
    base = _medians(found["ours"])
    for name, rounds in found.items():
        shown = [
            f"{key} {value:7.2f} ({min(one[key] for one in rounds):.2f}-{max(one[key] for one in rounds):.2f},"
            f" {value / base[key]:.2f}x)"
            for key, value in _medians(rounds).items()
        ]
        lines.append(f"  {name:17}{'  '.join(shown)}")
    return "\n".join(lines)


def _medians(rounds: list[Figures]) -> Figures:
    return {key: median(one[key] for one in rounds) for key in rounds[0]}


def ours(url: str, load: Load) -> Figures:
    async def run() -> Figures:
        messages = [({"role": "user", "content": prompt},) for prompt in PROMPTS]
        workload = Workload("structured", tuple(map(Prompt, messages)), fixed_length=True)
        async with connect_url(url) as connection:
            began = time.perf_counter()
            asks = [Ask(workload, index % len(PROMPTS)) for index in range(load.requests)]
            timing = Timing(began, max_tokens=TOKENS)
            results = await closed_loop(Arm("a", connection), asks, load.concurrency, timing)
        assert {result.outcome for result in results} == {"successful"}
        return {
            "TTFT": median(result.ttft or 0 for result in results) * 1000,
            "ITL": median(gap for result in results for gap in result.gaps) * 1000,
            "TPOT": median(result.tpot or 0 for result in results) * 1000,
            "tokens/s": sum(result.output_tokens for result in results)
            / max(result.started + result.seconds for result in results),
        }

    return asyncio.run(run())


def from_the_call(url: str, load: Load) -> Figures:
    """TTFT as `vllm bench serve` counts it, with the HTTP library that it uses."""

    async def first_token(session: aiohttp.ClientSession, prompt: str) -> float:
        message = [{"role": "user", "content": prompt}]
        body = {"model": "tiny", "messages": message, "max_tokens": TOKENS, "stream": True, "temperature": 0}
        began, first, ids = time.perf_counter(), 0.0, {"ignore_eos": True, "return_token_ids": True}
        async with session.post(f"{url}/chat/completions", json={**body, **ids}) as answer:
            async for line in answer.content:
                if not first and line.startswith(b"data: ") and json.loads(line[6:]).get("choices"):
                    first = time.perf_counter() - began
        return first

    async def run() -> list[float]:
        prompts, times = iter([PROMPTS[index % len(PROMPTS)] for index in range(load.requests)]), list[float]()

        async def keep_asking(session: aiohttp.ClientSession) -> None:
            for prompt in prompts:
                times.append(await first_token(session, prompt))

        async with aiohttp.ClientSession() as session:
            await asyncio.gather(*(keep_asking(session) for _ in range(load.concurrency)))
        return times

    return {"TTFT": median(asyncio.run(run())) * 1000}


def vllm_bench(url: str, load: Load, folder: Path) -> Figures:
    asked = [json.dumps({"prompt": PROMPTS[index % len(PROMPTS)]}) for index in range(load.requests)]
    (folder / "prompts.jsonl").write_text("\n".join(asked))
    options = {
        "backend": "openai-chat",
        "base-url": url.removesuffix("/v1"),
        "endpoint": "/v1/chat/completions",
        "model": "tiny",
        "tokenizer": TARGET,
        "dataset-name": "custom",
        "dataset-path": folder / "prompts.jsonl",
        "custom-output-len": TOKENS,
        "num-prompts": load.requests,
        "max-concurrency": load.concurrency,
        "temperature": 0,
        "percentile-metrics": "ttft,tpot,itl",
        "result-dir": folder,
        "result-filename": "bench.json",
    }
    flags = ["--ignore-eos", "--skip-chat-template", "--disable-shuffle", "--disable-tqdm", "--save-result"]
    _run(
        [
            _program("python"),
            "-c",
            BENCH,
            *flags,
            *(str(x) for key, value in options.items() for x in (f"--{key}", value)),
        ]
    )
    found = json.loads((folder / "bench.json").read_text())
    assert found["completed"] == load.requests
    times = {name.upper(): found[f"median_{name}_ms"] for name in ("ttft", "itl", "tpot")}
    return {**times, "tokens/s": found["output_throughput"]}


def guidellm(url: str, load: Load, folder: Path) -> Figures:
    (folder / "guide.jsonl").write_text(
        "\n".join(json.dumps({"prompt": prompt, "output_tokens_count": TOKENS}) for prompt in PROMPTS)
    )
    target = {"kind": "openai_http", "target": url.removesuffix("/v1"), "model": "tiny"}
    options = {
        "backend": json.dumps({**target, "extras": {"body": {"temperature": 0}}}),
        "profile": f"kind=concurrent,streams={load.concurrency}",
        "constraint": f"kind=max_requests,count={load.requests}",
        "tokenizer": f"kind=huggingface_auto,model={TARGET}",
        "data": f"kind=json_file,path={folder / 'guide.jsonl'}",
        "output": f"kind=json,path={folder / 'benchmarks.json'}",
    }
    flags = ["--disable-console", "--disable-progress"]
    _run([_program("guidellm"), "run", *flags, *(x for key, value in options.items() for x in (f"--{key}", value))])
    metrics = json.loads((folder / "benchmarks.json").read_text())["benchmarks"][0]["metrics"]
    # Its ITL is the mean per token after the first, which others call TPOT; its TPOT counts the first token, too.
    names = {"TTFT": "time_to_first_token_ms", "TPOT": "inter_token_latency_ms"}
    times = {figure: metrics[name]["successful"]["median"] for figure, name in names.items()}
    return {**times, "tokens/s": metrics["output_tokens_per_second"]["successful"]["mean"]}


def aiperf(url: str, load: Load, folder: Path) -> Figures:
    (folder / "aiperf.jsonl").write_text("\n".join(json.dumps({"text": prompt}) for prompt in PROMPTS))
    body = {"temperature": 0, "max_tokens": TOKENS, "ignore_eos": True}
    options = {
        "model": "tiny",
        "url": url.removesuffix("/v1"),
        "endpoint-type": "chat",
        "tokenizer": TARGET,
        "concurrency": load.concurrency,
        "request-count": load.requests,
        "input-file": folder / "aiperf.jsonl",
        "custom-dataset-type": "single_turn",
        "extra-inputs": json.dumps(body),
        "output-artifact-dir": folder / "aiperf",
    }
    flags = ["--streaming", "--use-server-token-count", "--ui", "none"]
    named = (part for key, value in options.items() for part in (f"--{key}", value))
    _run([_program("aiperf"), "profile", *flags, *named])
    found = json.loads((folder / "aiperf" / "profile_export_aiperf.json").read_text())
    # Its ITL is the mean per token after the first, too.
    names = {"TTFT": "time_to_first_token", "TPOT": "inter_token_latency"}
    times = {figure: found[name]["p50"] for figure, name in names.items()}
    return {**times, "tokens/s": found["output_token_throughput"]["avg"]}


def _program(name: str) -> Path:
    return Path(os.environ["OTHER_CLIENTS"]) / name


def _run(command: list[object]) -> None:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@contextmanager
def scheduled() -> Iterator[str]:
    with process_of(by_schedule) as (url, _):
        yield url


def by_schedule(request: Served) -> Answer:
    """First tokens after 60 ms, then 2 more every 25 ms."""
    if request.path == "/v1/models":
        return document({"object": "list", "data": [{"id": "tiny", "object": "model"}]})
    pieces = [(0.06, 2), *[(0.025, 2)] * (TOKENS // 2 - 1)]
    kind = {"object": "chat.completion.chunk", "model": "tiny"}
    chunks = [
        event(pause, {**kind, "choices": [{"index": 0, "delta": {"content": "word " * size}, "token_ids": [1] * size}]})
        for pause, size in pieces
    ]
    usage = {"prompt_tokens": 9, "completion_tokens": TOKENS, "total_tokens": TOKENS + 9}
    ends = {**kind, "choices": [], "usage": usage}
    final = {**kind, "choices": [{"index": 0, "delta": {"content": "word "}, "finish_reason": "length"}]}
    return Answer([*chunks[:-1], event(0.025, final), event(0.0, ends), DONE])


@contextmanager
def vllm(folder: Path) -> Iterator[str]:
    """A server of the tiny target with its P-EAGLE head."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    head = {
        "method": "eagle3",
        "model": str(TINY / "models" / "p-eagle"),
        "num_speculative_tokens": 7,
        "parallel_drafting": True,
    }
    settings = f"--port {port} --host 127.0.0.1 --served-model-name tiny --max-model-len 1024 --max-num-seqs 64"
    quick = "--dtype float32 --enforce-eager --kv-cache-memory-bytes 268435456"
    program = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", TARGET]
    command = [*program, *settings.split(), *quick.split(), "--speculative-config", json.dumps(head)]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    with (folder / "vllm.log").open("w") as log:
        process = subprocess.Popen([str(part) for part in command], env=environment, stdout=log, stderr=log)
    try:
        _wait(f"http://127.0.0.1:{port}/health", process)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.wait()


def _wait(url: str, process: subprocess.Popen[bytes]) -> None:
    while process.poll() is None:
        try:
            if httpx.get(url, trust_env=False).is_success:
                return
        except httpx.TransportError:
            time.sleep(0.5)
    pytest.fail("vLLM ended at its start")
