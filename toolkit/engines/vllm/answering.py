"""`python -m toolkit.engines.vllm.answering`: the installed vLLM says what it makes of settings, to who starts it.

The first line of its input is JSON with the bounds of an answer and whether the accelerator is one that this machine
need not have. Each further one is a question, which is answered by a line. vLLM is imported once, in 10 s or more; a
configuration leaves traces in its process, so each question is answered in a fork, within milliseconds. Nothing is
downloaded and no Python of a model runs; it ends with its input.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import shutil
import signal
import sys
import types
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import IO, Any

# Compiled for GPUs, so builds for CPUs lack them; a configuration only asks whether they are there.
_CUDA_EXTENSIONS = (
    *("vllm._C", "vllm._C_stable_libtorch", "vllm._moe_C", "vllm._moe_C_stable_libtorch"),
    *("vllm.vllm_flash_attn._vllm_fa2_C", "vllm.vllm_flash_attn._vllm_fa3_C"),
)
_CUTLASS_SINCE = 89
# Where the server's parser is, from 0.33 on, from 0.29 on, and before.
_SERVING = ("common", "launchers", "openai")
_LONGEST = 4000
# With which vLLM says no. Any other error may come of what this machine or its pretended accelerator lacks.
_REFUSALS = (ValueError, AssertionError, NotImplementedError, LookupError, TypeError)
# Said of what is not here (a model's Python, a newer Transformers), with an error of the same kind.
_NOT_HERE = ("trust_remote_code", "trust-remote-code", "Transformers does not recognize", "failed to be inspected")
_NETWORK = ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto")


class NoNetwork(OSError):
    """Something asked for the network."""


def main() -> None:
    """Answer until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is meant for the process that asks
    questions, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    bounds = json.loads(questions.readline() or "null")
    if bounds is None:
        return
    sys.addaudithook(_no_network)
    try:
        if bounds["pretends"]:
            pretend_cuda()
        ask = _asking(on_cpu=not bounds["pretends"])
    except ImportError as error:
        lacks = isinstance(error, ModuleNotFoundError)
        _say(answers, {"failed": f"it needs {error.name}, which is not here" if lacks else str(error)})
        return
    gc.collect()
    gc.freeze()  # what is here stays, and no collection in a fork has to look at it
    _say(answers, {})
    for line in questions:
        _say(answers, _in_fork(ask, json.loads(line), bounds))


def _no_network(event: str, arguments: tuple[Any, ...]) -> None:
    if event in _NETWORK and not (event == "socket.connect" and isinstance(arguments[1], str | bytes)):
        raise NoNetwork("nothing is downloaded here")


def _say(answers: IO[bytes], answer: Mapping[str, Any]) -> None:
    answers.write(json.dumps(answer).encode() + b"\n")
    answers.flush()


def _in_fork(ask: Callable[[Mapping[str, Any]], dict[str, str]], question: Any, bounds: Any) -> dict[str, str]:
    """The answer; one without any word of vLLM where the fork passes a bound."""
    reader, writer = os.pipe()
    fork = os.fork()
    if not fork:
        try:
            os.close(reader)
            _bound(bounds)
            with os.fdopen(writer, "wb") as stream:
                stream.write(json.dumps(ask(question)).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        answer = stream.read()
    _, status = os.waitpid(fork, 0)
    if answer:
        found: dict[str, str] = json.loads(answer)
        return found
    return {"failed": f"its process ended with {os.waitstatus_to_exitcode(status)}"}


def _bound(bounds: Mapping[str, Any]) -> None:
    """Of computing time, whose signal has no handler in Python, so the kernel ends it; and of memory beyond its own."""
    if sys.platform == "linux":
        import resource  # which Windows has not

        signal.setitimer(signal.ITIMER_PROF, bounds["seconds"])
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + bounds["memory"]
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _asking(*, on_cpu: bool) -> Callable[[Mapping[str, Any]], dict[str, str]]:
    """vLLM, imported, as a function of questions. Raises ImportError."""
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.model_executor.models import registry
    from vllm.platforms import current_platform
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    serving = serving_module()
    if on_cpu and not current_platform.is_cpu():
        raise ImportError("the vLLM that is installed is not built for CPUs")
    # Else vLLM starts an interpreter to look at a class of a model that it does not know yet: 20 s.
    setattr(registry, "_run_in_subprocess", lambda look: look())  # noqa: B010 - for mypy it is vLLM's own

    class Parser(FlexibleArgumentParser):
        """Says what it refuses instead of printing its help."""

        def error(self, message: str) -> Any:
            raise ValueError(message)

    # Before the first question, as it takes 1.5 s.
    parser = serving.make_arg_parser(Parser())  # type: ignore[no-untyped-call]

    def configure(question: Mapping[str, Any]) -> None:
        os.environ.update(question["variables"])
        options = runpy.run_path(question["entrypoint"])["vllm_options"](question["flags"], Path("unused"))
        parsed = parser.parse_args(list(chain.from_iterable(options)))
        serving.validate_parsed_serve_args(parsed)
        config = AsyncEngineArgs.from_cli_args(parsed).create_engine_config()
        if question["device"]:  # a worker's first question
            current_platform.check_if_supports_dtype(config.model_config.dtype)

    def ask(question: Mapping[str, Any]) -> dict[str, str]:
        _write_models(question["models"])
        _pretend_device(question["device"])
        try:
            configure(question)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it raises is an answer
            words = str(error)[:_LONGEST]
            if not words or not isinstance(error, ValueError):
                words = f"{type(error).__name__}: {words}"
            refused = isinstance(error, _REFUSALS) and not any(lack in words for lack in _NOT_HERE)
            return {"refused" if refused else "failed": words}
        return {}

    return ask


def serving_module() -> Any:
    """The module of this vLLM with its server's parser. Raises ImportError."""
    names = [f"vllm.entrypoints.{part}.cli_args" for part in _SERVING]
    for name in names[:-1]:
        with suppress(ModuleNotFoundError):  # of a package above it
            if find_spec(name):
                return importlib.import_module(name)
    return importlib.import_module(names[-1])


def _write_models(models: Mapping[str, Mapping[str, Any]]) -> None:
    """Folders with the models' small files, in that of this process: a configuration reads no others."""
    for name, files in models.items():
        shutil.rmtree(name, ignore_errors=True)
        Path(name).mkdir()
        for file, content in files.items():
            Path(name, file).write_text(json.dumps(content))


_device: dict[str, Any] = {"name": "NVIDIA L40S", "capability": [8, 9], "bytes": 44 * 2**30, "count": 1}


def _pretend_device(device: Mapping[str, Any] | None) -> None:
    _device.update(device or {})


def pretend_cuda() -> None:
    """vLLM's platform of NVIDIA's GPUs, whose questions about the driver are answered here."""
    for name in _CUDA_EXTENSIONS:
        sys.modules.setdefault(name, types.ModuleType(name))
    import torch
    import vllm.platforms
    from vllm import _custom_ops
    from vllm.platforms.cuda import NonNvmlCudaPlatform
    from vllm.platforms.interface import DeviceCapability
    from vllm.utils import torch_utils

    answers: dict[str, Callable[..., Any]] = {
        "get_device_capability": lambda cls, device_id=0: DeviceCapability(*_device["capability"]),
        "get_device_name": lambda cls, device_id=0: _device["name"],
        "get_device_total_memory": lambda cls, device_id=0: _device["bytes"],
        "device_count": lambda cls: _device["count"],
        "is_fully_connected": lambda cls, physical_device_ids: True,
        "is_cumem_allocator_available": lambda cls: True,  # asks for an extension
    }
    methods: dict[str, Any] = {name: classmethod(answer) for name, answer in answers.items()}
    setattr(vllm.platforms, "_current_platform", type("Pretended", (NonNvmlCudaPlatform,), methods)())  # noqa: B010
    torch.cuda.device_count = lambda: int(_device["count"])
    torch.cuda.is_available = lambda: True
    if hasattr(torch_utils, "_cuda_device_count_stateless"):  # how vLLM counted before 0.20
        torch_utils._cuda_device_count_stateless = lambda *_: int(_device["count"])
    for name in dir(_custom_ops):  # what the extensions say of a capability, which modules ask when they are imported
        if name.startswith("cutlass_") and "support" in name:
            setattr(_custom_ops, name, lambda capability, *_: capability >= _CUTLASS_SINCE)
    import vllm.config.vllm  # with that platform

    setattr(vllm.config.vllm, "HAS_TRITON", True)  # noqa: B010 - as in builds for GPUs; V2 asks for it


if __name__ == "__main__":
    main()
