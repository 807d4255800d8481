"""The drafters that vLLM's own recipes (github vllm-project/recipes) speculate with, read from an archive of them."""

from __future__ import annotations

import gzip
import io
import json
import re
import tarfile
import zlib
from collections.abc import Iterator

from toolkit import documents

ARCHIVE = documents.Limits(size=64 * 1024**2)
_UNPACKED, _RECIPE = 256 * 1024**2, 1024**2
_FILE = re.compile(r"[^/]+/models/[^/]+/[^/]+\.yaml")
_CONFIG = re.compile(r'\{[^{}]*"num_speculative_tokens"[^{}]*\}')
_REPOSITORY = re.compile(r"[\w.-]{1,96}/[\w.-]{1,96}", re.ASCII)


def drafters(archive: bytes) -> set[str]:
    """Repositories that a value of --speculative-config names. Raises documents.Unfit for what is no such archive."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(archive)) as packed:
            unpacked = packed.read(_UNPACKED + 1)
        if len(unpacked) > _UNPACKED:
            raise documents.Unfit(f"more than {_UNPACKED} bytes when unpacked")
        with tarfile.open(fileobj=io.BytesIO(unpacked)) as files:
            return {repo for text in _recipes(files) for repo in _named(text)}
    except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
        raise documents.Unfit(f"no archive of recipes: {error}") from error


def _recipes(files: tarfile.TarFile) -> Iterator[str]:
    for member in files:
        content = files.extractfile(member) if _FILE.fullmatch(member.name) and member.isfile() else None
        if content and member.size <= _RECIPE:
            yield content.read().decode("utf-8", "replace")


def _named(text: str) -> Iterator[str]:
    for config in _CONFIG.findall(text):
        try:
            model = json.loads(config).get("model")
        except ValueError:
            continue
        if isinstance(model, str) and _REPOSITORY.fullmatch(model):
            yield model
