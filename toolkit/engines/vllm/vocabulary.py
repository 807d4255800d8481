"""The vocabulary of gpt-oss's chat format, which is in no model repository: older vLLM downloads it when it starts.

openai-harmony looks for it in the folder that TIKTOKEN_ENCODINGS_BASE names, and compares its SHA-256 (openai/harmony
at 55dc3228, src/tiktoken_ext/public_encodings.rs). Its size is that of public copies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from toolkit.catalog import lookup
from toolkit.engines.vllm.facts import facts
from toolkit.findings import Finding
from toolkit.recipe.facts import ModelFacts
from toolkit.recipe.resolve import Recipe
from toolkit.recipe.rules import Download

_VOCABULARY = Download(
    name="o200k_base.tiktoken",
    url="https://openaipublic.blob.core.windows.net/encodings/o200k_base.tiktoken",
    size=3_613_922,
    sha256="446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    variable="TIKTOKEN_ENCODINGS_BASE",
)
_MODEL_TYPE = "gpt_oss"


def downloads(recipe: Recipe) -> Sequence[Download]:
    """The vocabulary, where an isolated container would download it."""
    return (_VOCABULARY,) if _is_missing(recipe, recipe.target_type) else ()


def check_vocabulary(recipe: Recipe, target: ModelFacts) -> Iterator[Finding]:
    """A finding on a vocabulary that an isolated container cannot download, or that staging downloads for it."""
    if not _is_missing(recipe, str(target.config.get("model_type"))):
        return
    engine = f"{recipe.engine.name} {recipe.engine.version}"
    newer = f"Set `engine.version` to {facts().harmony_download_until} or newer"
    if recipe.platform.weights == "s3":
        message = (
            f"{engine} needs the vocabulary of gpt-oss's chat format when it starts: it is staged beside the weights"
        )
        hint = f"Deploy from a machine that reaches {_VOCABULARY.url}. Or: {newer}."
        yield Finding("engine.vocabulary", message, "network.isolation", hint=hint, severity="info")
        return
    message = (
        f"{engine} downloads the vocabulary of gpt-oss's chat format when it starts, which an isolated container cannot"
    )
    hint = f"{newer}, or write `platform: {{weights: s3}}`, which stages it."
    yield Finding("engine.vocabulary", message, "network.isolation", hint=hint)


def _is_missing(recipe: Recipe, model_type: str) -> bool:
    is_older = lookup.older(recipe.engine.version, facts().harmony_download_until)
    own = _VOCABULARY.variable in recipe.engine.env or recipe.target.kind == "jumpstart"
    isolated = recipe.network.isolation and recipe.platform_rules.facts.isolates_containers
    return model_type == _MODEL_TYPE and isolated and is_older and not own
