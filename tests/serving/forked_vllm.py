"""vLLM without a server: imported once, and what it is asked to do runs in a process of its own, forked from there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from toolkit.recipe.recipe import Recipe

PROGRAM = Path(__file__).with_name("in_vllm.py")


def llm_arguments(recipe: Recipe) -> dict[str, Any]:
    """The flags of the recipe's server, as vLLM takes them without one."""
    arguments = {flag.replace("-", "_"): value for flag, value in recipe.flags.items()}
    del arguments["enable_prompt_tokens_details"]  # the server's own
    if recipe.speculation and recipe.speculation.drafter:
        drafter = str(recipe.speculation.drafter.folder)
        arguments["speculative_config"] = {**arguments["speculative_config"], "model": drafter}
    return {**arguments, "model": str(recipe.target.folder), "disable_log_stats": False}


class Refused(Exception):
    """vLLM raised; the text is the traceback."""


class ForkedVllm:
    """Runs the functions of `in_vllm.py`."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._import_log = folder, folder / "import.log"
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "TOOLKIT_VLLM_FORKS": "1",
            "OMP_NUM_THREADS": "1",  # as vLLM sets it for serving; more of them wait for each other in a busy loop
        }
        with self._import_log.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, PROGRAM],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environment,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.kill()
        self._process.communicate()

    def run(self, name: str, environment: Mapping[str, str] | None = None, **arguments: Any) -> Any:
        """What the function returns. Raises Refused when it raises."""
        out, log = self._folder / "out.json", self._folder / "log"
        out.unlink(missing_ok=True)
        job = {"name": name, "arguments": arguments, "environment": dict(environment or {})}
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps({**job, "out": str(out), "log": str(log)}) + "\n")
        self._process.stdin.flush()
        status = self._process.stdout.readline().strip()
        assert status == "0", f"{status or 'no answer'}: {self._import_log.read_text()[-4000:]}"
        assert out.exists(), log.read_text()[-4000:]
        answer = json.loads(out.read_text())
        if "error" in answer:
            raise Refused(answer["error"])
        return answer["result"]
