"""engines/vllm/requests.json: what vLLM says where it refuses a request, read in its source.

In the form of `refusals.json`, for the table `requests` of `explain`: nothing of it ends a start.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from toolkit.catalog.lookup import FOLDER
from tools.catalogue.documents import Documents
from tools.catalogue.refusals import as_text, pattern_of, said_by, with_words

FILE = FOLDER / "engines" / "vllm" / "requests.json"
_FILES = (
    "entrypoints/**/*.py",
    "renderers/**/*.py",
    "sampling_params.py",
    "pooling_params.py",
    "v1/engine/*processor.py",
    "v1/structured_output/*.py",
    "v1/sample/logits_processor/*.py",
    "model_executor/guided_decoding/*.py",
    "tokenizers/deepseek*.py",
    "tokenizers/mistral.py",
    "engine/llm_engine.py",
    "inputs/*.py",
)
# What starts a server, runs without one, or talks to other servers than clients.
_NO_REQUEST = re.compile(
    r"(^|/)(cli|launchers?|scale_out|mcp|dev|elastic_ep|fault_tolerance|cli_args|api_server|llm|run_batch|grpc_server"
    r"|offline_utils|tool_server|tool_parsers|reasoning_parsers|registry)(/|\.py$)"
)
# Without the name of a request's field, or of what vLLM alone has, a pattern would match what others say. Some, in
# the same files, are about a server's start.
_OF_A_REQUEST = re.compile(
    r"^(?=[\w`\"'])(?!.*(\-\-|engine args|VLLM_|install|[Nn]ot implemented|[Ii]nternal|[Uu]nreachable|subclass"
    r"|registered|skip_tokenizer_init|executor_backend)).*"
    r"([a-z]_[a-z]|(?<!\w)[`'\"]\w|logprob|penalty|temperature|xgrammar)"
)


def generate(documents: Documents) -> str:
    """The text of the file, with the installed version added to those that it has."""
    import vllm

    shipped = json.loads(FILE.read_text(encoding="utf-8"))
    version = vllm.__version__.partition("+")[0]
    made = with_version(shipped, version, read_requests(Path(vllm.__file__).parent))
    return as_text({**made, "date": documents.date})


def with_version(shipped: dict[str, Any], version: str, words: set[str]) -> dict[str, Any]:
    """The file with the words of that version, too."""
    (cause,) = shipped["requests"]
    return with_words(shipped, "requests", version, {cause["code"]: words})


def read_requests(package: Path) -> set[str]:
    """Regular expressions of what is raised, or answered, where requests are read."""
    files = {file for name in _FILES for file in package.glob(name)}
    read = (file for file in files if not _NO_REQUEST.search(str(file.relative_to(package))))
    return {text for file in read for text in _texts(file)}


def _texts(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        said = said_by(node, ("append", "create_error_response"))
        pattern = "" if said is None else pattern_of(said, _OF_A_REQUEST)
        if _OF_A_REQUEST.search(pattern):  # its first sentence, which may lack the name
            yield pattern
