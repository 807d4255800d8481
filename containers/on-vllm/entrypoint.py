"""What every container of ours does: its environment becomes vLLM's arguments, then vLLM becomes this process.

SM_VLLM_MAX_MODEL_LEN=4096 is `--max-model-len 4096`; vllm/README.md has the whole table. The contract is that of AWS's
vLLM image, but that no value becomes another flag. No shell and no supervisor stand between the two processes, so no
value is ever parsed a second time. Where we are a container's first process, we stay as its init: SageMaker's SIGTERM
reaches vLLM, also while it loads, and vLLM's exit code reaches SageMaker.

vLLM gets the middleware of serve_middleware.py, which lies beside this file: health that is true, and a graceful end.
Standard library only.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import NoReturn

PREFIX = "SM_VLLM_"
MODEL = "SM_VLLM_MODEL"
PORT = "SM_VLLM_PORT"

HERE = Path(__file__).resolve().parent
WHEELS = HERE / "site-packages"  # what the image adds to its base's
SERVER = "vllm.entrypoints.openai.api_server"
SERVER_AFTER_PTH = "start_with_pth"
# Of the nodes that run a model together, those after the first answer nobody, which only vLLM's command knows.
HEADLESS, COMMAND = ["--headless"], ["vllm.entrypoints.cli.main", "serve"]

# The first is the innermost. The environment's own comes after and stands around them.
OUR_OPTIONS = [
    ["--middleware", "serve_middleware.GenerationHealth"],
    ["--middleware", "serve_middleware.ProgressHealth"],
    ["--middleware", "serve_middleware.Drain"],
]

# vLLM takes several values for these; whatever is written for another flag stays one (tests compare this with vLLM).
SEVERAL_VALUES = {
    "--allowed-media-domains",
    "--api-key",
    "--collect-detailed-traces",
    "--cpu-offload-params",
    "--cudagraph-capture-sizes",
    "--ignore-patterns",
    "--kv-cache-dtype-skip-layers",
    "--logits-processors",
    "--lora-modules",
    "--lora-target-modules",
    "--numa-bind-cpus",
    "--numa-bind-nodes",
    "--offload-params",
    "--served-model-name",
    "--sleep-preserve-parameter-names",
}

# vLLM's parser takes whatever else begins with a dash for a flag.
NEGATIVE_NUMBER = re.compile(r"-\d+|-\d*\.\d+")

# Values that never reach the log. A flag is a token's when it ends so (--hf-token), not where it counts them; the
# configuration of watermarks holds their key.
SECRET_FLAG = re.compile(r"key|password|secret|token$|watermark")
SECRET_KEY = re.compile(r"(^|[_-]|api|access)key$|password|passwd|secret|token$|credential", re.IGNORECASE)
URL_LOGIN = re.compile(r"(?<=://)[^\s/@\"']*(?=@)")


class ServeError(Exception):
    """vLLM cannot be started, or not go on; the exit code is 2 where the environment or the host is at fault."""

    def __init__(self, message: str, code: int = 2) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Launch:
    """vLLM's server before its start: options, each a flag and its values, and the environment that it gets."""

    options: list[list[str]]
    env: dict[str, str]


def launch(env: Mapping[str, str]) -> Launch:
    """What the environment asks for. Raises ServeError."""
    port = listen_port(env)
    if env.get(PORT, port) != port:
        log(f"{PORT}={env[PORT]} is ignored: SageMaker asks on port {port}")
    asked = vllm_options(env, base_dir(env) / "model")
    return Launch([*OUR_OPTIONS, *asked], vllm_environment(env))


def base_dir(env: Mapping[str, str]) -> Path:
    """Where SageMaker's folders are."""
    return Path(env.get("SAGEMAKER_BASE_DIR") or "/opt/ml")


def listen_port(env: Mapping[str, str]) -> str:
    """The port that SageMaker will ask: its own choice on a multi-container endpoint, else 8080."""
    return env.get("SAGEMAKER_BIND_TO_PORT") or "8080"


def vllm_options(env: Mapping[str, str], model_dir: Path) -> list[list[str]]:
    """vLLM's options, each a flag and its values: the port, the model, then the SM_VLLM_* variables by name."""
    options = [["--port", listen_port(env)], ["--model", *no_flags(MODEL, [find_model(env, model_dir)])]]
    names = sorted(name for name in env if name.startswith(PREFIX) and name not in {MODEL, PORT})
    options += [option(name, env[name]) for name in names]
    return [given for given in options if given]


def vllm_environment(env: Mapping[str, str]) -> dict[str, str]:
    """The environment that vLLM gets: our packages, their commands and our module, and a home that it can write to.

    All caches (Hugging Face's, vLLM's, Triton's, FlashInfer's) are in the home, unless their own variables say
    otherwise. So a read-only root or a user without a home or a name does not stop it. The working folder is no place
    to import from: PYTHONSAFEPATH says so, which Python 3.10 ignores where it would refuse `-P`. Nor is the model's:
    vLLM's layer for SageMaker runs `model.py` of the folder that SAGEMAKER_MODEL_PATH names, by default the model's.
    Raises ServeError where a variable leads that layer, or Python, to a file of the model all the same.
    """
    run_nothing_of_the_model(env)
    wheels = str(WHEELS) if WHEELS.is_dir() else ""
    search = os.pathsep.join(filter(None, [wheels, env.get("PYTHONPATH"), str(HERE)]))
    commands = os.pathsep.join(filter(None, [wheels and str(WHEELS / "bin"), env.get("PATH", os.defpath)]))
    home = env.get("HOME", "")
    home = home if writable(home) else env.get("TMPDIR") or "/tmp"  # noqa: S108
    names = {name: env.get(name) or user_name() for name in ("USER", "LOGNAME")}
    ours = {"PYTHONPATH": search, "PYTHONSAFEPATH": "1", "PATH": commands, "HOME": home}
    return {**env, **names, **ours, "SAGEMAKER_MODEL_PATH": str(HERE)}


def run_nothing_of_the_model(env: Mapping[str, str]) -> None:
    """Raises ServeError where a variable names Python below /opt/ml, which whoever made the model has written."""
    models = base_dir(env).resolve()
    for name, value in env.items():
        custom = [value.partition(":")[0]] if name.startswith("CUSTOM_") else []  # file.py:function
        for path in value.split(os.pathsep) if name == "PYTHONPATH" else custom:
            if (HERE / path).resolve().is_relative_to(models):
                raise ServeError(f"{name} names {path}: Python below {models} is not run here. Put it into the image")


def user_name() -> str:
    """Who runs this. PyTorch and vLLM ask for a name, which a user of any number (OpenShift's, `USER 1000`) has not."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"user-{os.getuid()}"


def writable(folder: str) -> bool:
    """Whether that folder, or what is still missing of its path, can be written to."""
    path = Path(folder)
    while not path.exists() and path != path.parent:
        path = path.parent
    return bool(folder) and path.is_dir() and os.access(path, os.W_OK | os.X_OK)


def vllm_version(search: Iterable[str]) -> str | None:
    """The version of the vLLM that Python will find in those folders, which importing it would take seconds to say."""
    for folder in search:
        package = Path(folder, "vllm")
        if (package / "__init__.py").is_file():
            file = package / "_version.py"
            text = file.read_text(encoding="utf-8") if file.is_file() else ""
            found = re.search(r"^__version__ = .*['\"](.+)['\"]$", text, re.MULTILINE)
            return found and found[1]
    return None


def find_model(env: Mapping[str, str], model_dir: Path) -> str:
    """The model to serve: SM_VLLM_MODEL, else `model_dir` where it holds anything, else HF_MODEL_ID."""
    if env.get(MODEL):
        return env[MODEL]
    if model_dir.is_dir() and any(model_dir.iterdir()):
        return str(model_dir)
    if env.get("HF_MODEL_ID"):
        return env["HF_MODEL_ID"]
    raise ServeError(
        "no model to serve. Do one of these:\n"
        f"  set {MODEL} to a Hugging Face id or a folder\n"
        f"  give the SageMaker model its data (ModelDataSource): {model_dir} is empty or missing\n"
        "  on Kubernetes, put the model where `toolkit plan RECIPE` says: its folder in the bucket or claim is empty\n"
        "  set HF_MODEL_ID to a Hugging Face id"
    )


def option(name: str, value: str) -> list[str]:
    """The flag and values that one SM_VLLM_* variable stands for; nothing where it leaves its flag out."""
    if name == PREFIX:
        raise ServeError(f"the variable {PREFIX} names no flag; write for example {PREFIX}MAX_MODEL_LEN=4096")
    flag = "--" + name.removeprefix(PREFIX).lower().replace("_", "-")
    word = value.strip().lower()
    if word == "false":
        return []
    if word == "true" or not value:
        return [flag]
    if SECRET_FLAG.search(flag) and value.startswith("-") and not NEGATIVE_NUMBER.fullmatch(value):
        return [f"{flag}={value}"]  # which the parser takes for no flag
    values = no_flags(name, split(value) if flag in SEVERAL_VALUES else [value])
    return [flag, *values] if values else []


def no_flags(name: str, values: list[str]) -> list[str]:
    """The values of the variable `name`. Raises ServeError where vLLM's parser would take one for a flag."""
    if any(value.startswith("-") and not NEGATIVE_NUMBER.fullmatch(value) for value in values):
        raise ServeError(f"{name} has a value that begins with a dash, which vLLM would take for another flag")
    return values


def split(value: str) -> list[str]:
    """One value per element of a JSON list, one per object of several in a row; anything else stays as it is."""
    documents = json_documents(value)
    if len(documents) == 1 and isinstance(documents[0], list):
        documents = documents[0]
    elif len(documents) < 2 or not all(isinstance(document, dict) for document in documents):
        return [value]
    return [element_text(document) for document in documents if document is not None]


def json_documents(text: str) -> list[object]:
    """The JSON documents that `text` is a row of; none where any part of it is not JSON."""
    documents: list[object] = []
    text = text.strip()
    while text:
        try:
            document, end = json.JSONDecoder().raw_decode(text)
        except (ValueError, RecursionError):
            return []
        documents.append(document)
        text = text[end:].lstrip()
    return documents


def element_text(element: object) -> str:
    """A list element as one argument: text as it is, everything else as compact JSON."""
    return element if isinstance(element, str) else json.dumps(element, separators=(",", ":"))


def shown(option: list[str]) -> list[str]:
    """The option as the log may show it: a secret's value as ***, also one in JSON or in a URL."""
    flag, *values = option
    name, joined, _ = flag.partition("=")
    if SECRET_FLAG.search(name):
        return [f"{name}=***" if joined else name, *("***" for _ in values)]
    return [flag, *map(without_secrets, values)]


def without_secrets(value: str) -> str:
    """JSON stays as it is written where it has no secret."""
    documents = json_documents(value)
    try:
        hidden = [hide(document) for document in documents]
    except RecursionError:
        return "***"
    text = value if hidden == documents else " ".join(json.dumps(document, ensure_ascii=False) for document in hidden)
    return URL_LOGIN.sub("***", text)


def hide(document: object) -> object:
    """The JSON document with *** for each value whose key says that it is a secret."""
    if isinstance(document, dict):
        return {key: "***" if SECRET_KEY.search(key) else hide(value) for key, value in document.items()}
    return [hide(element) for element in document] if isinstance(document, list) else document


def log(message: str) -> None:
    """Writes to the container's log, under the name of the program that runs."""
    sys.stderr.write(f"{Path(sys.argv[0]).name}: {message}\n")


def arguments(options: Iterable[list[str]]) -> list[str]:
    """What Python is given to run vLLM's server, or a node's share of one."""
    options = list(options)
    program = [SERVER_AFTER_PTH if any(WHEELS.glob("*.pth")) else SERVER]
    return ["-m", *(COMMAND if HEADLESS in options else program), *chain.from_iterable(options)]


def shown_command(options: Iterable[list[str]]) -> str:
    """The command as the log may show it, ready to paste but for secrets."""
    return shlex.join(["python3", *arguments(map(shown, options))])


def become_vllm(started: Launch) -> NoReturn:
    """Turns this process into vLLM's server; where it is process 1, a child of it, for which it stays as init."""
    from init import stay_as_init  # `toolkit check --ask` reads this file alone

    stay_as_init()
    try:
        os.execve(sys.executable, [sys.executable, *arguments(started.options)], started.env)  # noqa: S606
    except (OSError, ValueError) as error:  # too long for a process; a JSON escape for NUL or for half a character
        raise ServeError(f"these arguments cannot be given to a process: {error}") from error


def exit_code(program: Callable[[], None]) -> int:
    """Runs it: 0, or the code of a ServeError, whose message goes to the log."""
    try:
        program()
    except ServeError as error:
        log(str(error))
        return error.code
    return 0
