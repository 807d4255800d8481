"""The drafters that vLLM's own recipes (github vllm-project/recipes) speculate with, read from an archive of them."""

from __future__ import annotations

import gzip
import io
import re
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from toolkit import documents
from toolkit.catalog import lookup, methods, published

ARCHIVE = documents.Limits(size=64 * 1024**2)
_UNPACKED, _RECIPE = 256 * 1024**2, 1024**2
_FILE = re.compile(r"[^/]+/models/[^/]+/[^/]+\.yaml")
_CONFIG = re.compile(r'\{[^{}]*"num_speculative_tokens"[^{}]*\}')
_TARGET = re.compile(r"^ +model_id: *[\"']?([\w./-]+)", re.MULTILINE | re.ASCII)
REPOSITORY = re.compile(r"[\w-][\w.-]{0,95}/[\w-][\w.-]{0,95}", re.ASCII)


@dataclass(frozen=True)
class Named:
    """A drafter as a recipe names it; what the recipe does not say is empty, or None."""

    repo: str
    method: str
    tokens: int | None
    target: str
    source: str


def drafters(archive: bytes) -> dict[str, Named]:
    """The drafters that a value of --speculative-config names. Raises documents.Unfit for what is no such archive."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(archive)) as packed:
            unpacked = packed.read(_UNPACKED + 1)
        if len(unpacked) > _UNPACKED:
            raise documents.Unfit(f"more than {_UNPACKED} bytes when unpacked")
        with tarfile.open(fileobj=io.BytesIO(unpacked)) as files:
            return {one.repo: one for path, text in _recipes(files) for one in _named(text, path)}
    except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
        raise documents.Unfit(f"no archive of recipes: {error}") from error


def _recipes(files: tarfile.TarFile) -> Iterator[tuple[str, str]]:
    """Path in the repository, and text."""
    for member in files:
        content = files.extractfile(member) if _FILE.fullmatch(member.name) and member.isfile() else None
        if content and member.size <= _RECIPE:
            yield member.name.partition("/")[2], content.read().decode("utf-8", "replace")


def _named(text: str, path: str) -> Iterator[Named]:
    target = found[1] if (found := _TARGET.search(text)) else ""
    for written in _CONFIG.findall(text):
        try:
            config = documents.decode(written)
        except documents.Unfit:
            continue
        model, tokens = config.get("model"), published.draft_tokens(config.get("num_speculative_tokens"))
        if isinstance(model, str) and REPOSITORY.fullmatch(model):
            method = methods.configured(lookup.default_engine(), config) or str(config.get("method") or "")
            yield Named(model, method, tokens, target, f"recipes of {lookup.engine_title()}, {path}")
