"""A warm start of vLLM: what it finds out when it first starts is kept, and given to later containers.

torch.compile's code, the tuning of kernels and FlashInfer's own kernels all lie in the folder VLLM_CACHE_ROOT here.
vLLM finds a cached entry by a hash of its whole configuration, so an entry that does not fit is not taken. That hash
has the path of each model in it (ModelConfig.compute_hash of 0.32), which is not the same in a training job, in an
endpoint's container and in the next one on a user's machine. So both models get a path that only depends on the key.

Nothing here stops vLLM: what cannot be used is said in the log, and vLLM compiles as it does without.
Standard library only.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from artifacts import (
    ARTIFACTS,
    KEY,
    PARTS,
    copy_files,
    different,
    files_of,
    json_object,
    recorded,
    recorded_times,
    remove_files,
)
from compiling import Compiling
from entrypoint import Launch, ServeError, log

FOLDER = "vllm"
LARGEST = 4 * 1024**3  # the tiny pair's has 4 MB; no figure of a GPU is known
LINKS = Path("/tmp")  # noqa: S108 (not TMPDIR, which differs between containers; the folder in it is checked)
SPECULATION = "--speculative-config"
KEY_CHARACTERS = frozenset("0123456789abcdef")

# Where each tool keeps what it compiles, below the cache's root. vLLM moves the first two itself where it compiles a
# model (compilation/compiler_interface.py of 0.32); kernels outside of that stay with the tool's own default, the home.
# FLASHINFER_WORKSPACE_BASE: flashinfer/jit/env.py puts `.cache/flashinfer` below it.
CACHES = {
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TRITON_CACHE_DIR": "triton",
    "FLASHINFER_WORKSPACE_BASE": "flashinfer",
    "CUDA_CACHE_PATH": "cuda",
}


def warm(started: Launch) -> Launch:
    """vLLM's start with what an earlier one found out, as the environment says; as it was where it says nothing."""
    key = started.env.get(KEY)
    if not key:
        return started
    if ARTIFACTS in started.env:
        _take(Path(started.env[ARTIFACTS]), key, started.env)
    return _keeping(started, key)


def compiling(started: Launch, folder: Path) -> Compiling:
    """vLLM's start that fills the folder of artifacts."""
    kept, root = folder / FOLDER, cache_root(started.env)
    remove_files(kept)
    return Compiling(_keeping(started, started.env[KEY]), root, kept, LARGEST)


def cache_root(env: Mapping[str, str]) -> Path:
    """The one folder with all that vLLM finds out; `~` is the home, as vLLM has it."""
    root = Path(env.get("VLLM_CACHE_ROOT") or "~/.cache/vllm")
    return Path(env["HOME"], *root.parts[1:]) if root.parts[:1] == ("~",) else root


def _keeping(started: Launch, key: str) -> Launch:
    root = cache_root(started.env)
    caches = {name: str(root / folder) for name, folder in CACHES.items()}
    env = {**caches, **started.env, "VLLM_CACHE_ROOT": str(root)}
    return Launch(_with_lasting_paths(started.options, key), env)


def _take(folder: Path, key: str, env: Mapping[str, str]) -> None:
    """Copies what was kept to where vLLM looks for it, which has to be a place that it can write to."""
    root = cache_root(env)
    try:
        if why := _unusable(folder, key, env):
            log(f"warning: what an earlier start compiled is not used: {why}. vLLM compiles while it starts")
            return
        copy_files(folder / FOLDER, root, recorded_times(folder))
        log(f"vLLM takes what an earlier start compiled, from {folder}")
    except (OSError, ServeError) as error:
        log(f"warning: what an earlier start compiled is not used: {error}. vLLM compiles while it starts")


def _unusable(folder: Path, key: str, env: Mapping[str, str]) -> str:
    """Why what is in the folder is not for this container; empty if it is."""
    record = recorded(folder)
    if not record:
        return f"{folder} has none"
    if record.get("key") != key:
        return f"{folder} was made for something else{different(record.get('parts', {}), json_object(env, PARTS))}"
    size = sum(file.stat().st_size for file in files_of(folder / FOLDER))
    return f"{folder} has {size} bytes, and {LARGEST} are allowed" if size > LARGEST else ""


def _with_lasting_paths(options: list[list[str]], key: str) -> list[list[str]]:
    """The options with a path of target and drafter that is the same in every container with that key."""
    try:
        links = _links(key)
        return [item for option in options for item in _with_lasting_path(option, links)]
    except (OSError, ServeError) as error:
        log(f"warning: {error}; so what is compiled here is of no use to other containers, nor theirs here")
        return options


def _with_lasting_path(option: list[str], links: Path) -> list[list[str]]:
    flag, *values = option
    if flag == "--model":
        return [[flag, *(_link(links / "target", value) for value in values)]]
    if flag == SPECULATION and len(values) == 1:
        return [[flag, _with_drafter(values[0], links)]]
    if flag == "--config" and len(values) == 1 and (speculation := _speculation(Path(values[0]))):
        return [option, [SPECULATION, _with_drafter(speculation, links)]]  # which vLLM takes before the file's
    return [option]


def _with_drafter(text: str, links: Path) -> str:
    try:
        config = json.loads(text)
    except (ValueError, RecursionError):
        return text  # of which vLLM says what is wrong
    if not isinstance(config, dict) or not isinstance(config.get("model"), str):
        return text
    return json.dumps({**config, "model": _link(links / "drafter", config["model"])})


def _speculation(file: Path) -> str:
    """The speculative configuration of a settings file, to which flags go that are too long for a variable.

    Empty where it has none, or is not the JSON that the toolkit writes.
    """
    try:
        settings = json.loads(file.read_bytes())
    except (ValueError, RecursionError):
        return ""
    found = settings.get(SPECULATION.removeprefix("--")) if isinstance(settings, dict) else None
    return json.dumps(found) if isinstance(found, dict) else ""


def _links(key: str) -> Path:
    """A folder for links that nobody else can write to. Raises ServeError, OSError."""
    if not KEY_CHARACTERS.issuperset(key):
        raise ServeError(f"{KEY}={key!r} is not a key")
    folder = LINKS / f"toolkit-models-{os.getuid()}" / key
    for path in (folder.parent, folder):
        path.mkdir(mode=0o700, exist_ok=True)
        found = path.lstat()
        if path.is_symlink() or found.st_uid != os.getuid() or found.st_mode & 0o022:
            raise ServeError(f"{path} is not this user's alone")
    return folder


def _link(link: Path, model: str) -> str:
    """A link to the folder of a model; a model of the hub stays what it is.

    So does one whose link leads to another container's model: on a user's machine they share that folder, and whoever
    ends first would leave the other without.
    """
    if not Path(model).is_dir():
        return model
    folder = Path(model).resolve()
    with _alone(link.parent):
        if link.is_dir() and link.resolve() != folder:
            log(f"warning: {link} is another container's; so vLLM does not find here what was compiled for that path")
            return model
        link.unlink(missing_ok=True)
        link.symlink_to(folder)
    return str(link)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """While no other container of the machine is at the same."""
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
