"""`vllm serve` on this machine, for models that are shipped or made up from their shapes."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import Any

from packaging.version import Version
from tokenizers import Tokenizer, models, pre_tokenizers

from toolkit.endpoint.wire import Chunk
from toolkit.errors import InvocationError
from toolkit.measure.connection import HttpConnection, connect_url

_START_SECONDS = 300
_STOP_SECONDS = 30
_ERROR = re.compile(r"\b\w+(Error|Exception): .+")
_CHAT = "{% for message in messages %}{{ message['content'] }}{% endfor %}"


class NotStarted(Exception):
    """The server ended, or did not answer in time; the text says what its log says."""


@dataclass(frozen=True)
class Engine:
    """A server to start: flags without dashes, and `speculation` as vLLM's own configuration."""

    model: Path
    flags: Mapping[str, Any]
    speculation: Mapping[str, Any] | None = None
    env: Mapping[str, str] | None = None

    def command(self, port: int) -> list[str]:
        """What starts it."""
        vllm = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(self.model)]
        flags = {"host": "127.0.0.1", "port": port, "served-model-name": "model", **self.flags}
        if self.speculation:
            flags["speculative-config"] = json.dumps(self.speculation)
            if engine_version() >= Version("0.29"):  # older ones count drafts in their metrics only
                flags["per-request-spec-decode-metrics"] = "summary"
        for name, value in flags.items():
            vllm += [f"--{name}"] if value is True else [f"--{name}", str(value)]
        return vllm


class Completions(HttpConnection):
    """The completions route: gpt-oss' own chat format cannot read garbage."""

    async def stream(self, body: Mapping[str, Any]) -> AsyncIterator[list[Chunk]]:
        """The answer to the one message of a chat, taken as a plain prompt."""
        given = {key: value for key, value in body.items() if key != "messages"}
        asked = {"model": self.model, "prompt": body["messages"][0]["content"], **given}
        async with self._answer("POST", f"{self._base}/completions", asked) as response:
            async for chunks in response.chunks():
                yield chunks


@asynccontextmanager
async def serving(engine: Engine, log: Path, chat: bool) -> AsyncIterator[HttpConnection]:
    """A connection to the server once it answers; it is stopped at the end. Raises NotStarted."""
    port = _free_port()
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", **(engine.env or {})}
    with log.open("wb") as output:
        process = subprocess.Popen(
            engine.command(port), stdout=output, stderr=output, env=environment, start_new_session=True
        )
    try:
        async with connect_url(f"http://127.0.0.1:{port}/v1", "model") as connection:
            await _ready(connection, process, log)
            of_text = Completions(connection.name, connection.access, connection.client, connection.model)
            yield connection if chat else of_text
    finally:
        _stop(process)


async def _ready(connection: HttpConnection, process: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(_START_SECONDS):
        if process.poll() is not None:
            raise NotStarted(_reason(log))
        try:
            await connection.models()
        except InvocationError:
            await asyncio.sleep(1)
        else:
            return
    raise NotStarted(f"no answer in {_START_SECONDS} s: {_reason(log)}")


def _reason(log: Path) -> str:
    """The last error of the log; that the engine's process ended is what follows of it."""
    errors = [found[0] for found in _ERROR.finditer(log.read_text(errors="replace")) if "core init" not in found[0]]
    return (errors or ["no error in its log"])[-1][-200:]


def _stop(process: subprocess.Popen[bytes]) -> None:
    """The server and its workers, which are in a process group of their own."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(_STOP_SECONDS)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def write_model(folder: Path, config: Mapping[str, Any], tokens: int = 0) -> Path:
    """A model without weights: its config.json, and for a target a tokenizer that has a word for each of `tokens`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    if tokens:
        words = Tokenizer(models.WordLevel({f"t{number}": number for number in range(tokens)}, unk_token="t0"))
        words.pre_tokenizer = pre_tokenizers.Whitespace()
        words.save(str(folder / "tokenizer.json"))
        settings = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": _CHAT, "unk_token": "t0"}
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def engine_version() -> Version:
    """The installed vLLM's."""
    return Version(version(engine_name()))


def engine_name() -> str:
    """The package that has it: `vllm`, or a build of another name."""
    return packages_distributions()["vllm"][0]


def hardware() -> str:
    """The GPUs with their driver, as `nvidia-smi` names them; the number of CPU cores without any."""
    try:
        return "; ".join(_nvidia_smi("name,memory.total,driver_version"))
    except (OSError, subprocess.CalledProcessError):
        return f"{os.cpu_count()} CPU cores"


def gpu_gibibytes() -> float:
    """The memory of the first GPU."""
    return float(_nvidia_smi("memory.total")[0].split()[0]) / 1024


def _nvidia_smi(columns: str) -> list[str]:
    query = ["nvidia-smi", f"--query-gpu={columns}", "--format=csv,noheader"]
    return subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()
