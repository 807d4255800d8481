"""A recipe from YAML that others write for vLLM: of github vllm-project/recipes, or for `vllm serve --config`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolkit.engines.vllm.command_line import VllmSettings, read_arguments
from toolkit.errors import UsageError

# Parts of such a recipe that describe it or its hardware, of which nothing is lost for an endpoint.
_DESCRIPTIVE = {"meta", "guide", "compatible_strategies", "features", "opt_in_features", "variants", "model"}
_OF_MODEL = {
    "model_id",
    "min_vllm_version",
    "base_args",
    "base_env",
    "architecture",
    "parameter_count",
    "active_parameters",
    "context_length",
}
_SPECULATIVE = "speculative"


def is_collected(document: Mapping[str, Any]) -> bool:
    """Whether it is a recipe of vllm-project/recipes."""
    return isinstance(document.get("model"), Mapping) and "model_id" in document["model"]


def is_configuration(document: Mapping[str, Any]) -> bool:
    """Whether it is a configuration file of `vllm serve`: flags with their values."""
    return isinstance(document.get("model"), str) and not any(
        isinstance(document.get(key), Mapping) for key in ("target", "engine")
    )


def read_collected(document: Mapping[str, Any], variant: str | None = None) -> VllmSettings:
    """A recipe of vllm-project/recipes, with its features that are on by default and that for speculation.

    `variant` is one of its `variants`, such as `fp8`. Raises UsageError for one that it does not have.
    """
    model, found = document["model"], VllmSettings("a recipe of vllm-project/recipes")
    found.target["model"] = str(model["model_id"])
    chosen = _variant(document, variant)
    found.target["model"] = str(chosen.get("model_id", found.target["model"]))
    for arguments in (model.get("base_args"), chosen.get("extra_args"), chosen.get("args")):
        read_arguments([str(word) for word in arguments or ()], found)
    for variables in (model.get("base_env"), chosen.get("extra_env"), chosen.get("env")):
        for name, value in (variables or {}).items():
            found.add_variable(str(name), str(value))
    _features(document, found)
    _strategy(document, found)
    if "min_vllm_version" in model:
        found.leave_out(f"min_vllm_version {model['min_vllm_version']}", "the newest version that works is taken")
    for key in sorted({*model} - _OF_MODEL):
        found.leave_out(
            f"model.{key}", "it is not for an endpoint's engine, or the toolkit chooses it", _shown(model[key])
        )
    for key in [key for key, value in document.items() if key not in _DESCRIPTIVE and value]:
        if key != "strategy_overrides":
            found.leave_out(key, "it is for other hardware or other ways to start", _shown(document[key]))
    return found


def read_configuration(document: Mapping[str, Any]) -> VllmSettings:
    """A configuration file of `vllm serve`."""
    found = VllmSettings("a configuration file of vLLM")
    for key, value in sorted(document.items(), key=lambda item: item[0] != "model"):
        flag = str(key).replace("_", "-")
        if flag in ("env", "environment") and isinstance(value, Mapping):
            for name, text in value.items():
                found.add_variable(str(name), str(text))
        else:
            found.add_flag(flag, value)
    return found


def _variant(document: Mapping[str, Any], wanted: str | None) -> Mapping[str, Any]:
    variants = document.get("variants") or {}
    if wanted is None:
        return variants.get("default") or {}
    if wanted not in variants:
        raise UsageError(f"it has no variant `{wanted}`", hint=f"Its variants: {', '.join(variants) or 'none'}.")
    found: Mapping[str, Any] = variants[wanted]
    return found


def _features(document: Mapping[str, Any], found: VllmSettings) -> None:
    """The flags of features that are on by default, and of speculation."""
    optional = document.get("opt_in_features") or ()
    for name, feature in (document.get("features") or {}).items():
        words = [str(word) for word in feature.get("args") or ()]
        if name in optional and not any(_SPECULATIVE in word for word in words):
            found.leave_out(
                f"feature {name} ({' '.join(words)})", "it is off by default", "Add its flags to `engine.args`."
            )
        elif words:
            read_arguments(words, found)


def _strategy(document: Mapping[str, Any], found: VllmSettings) -> None:
    """The tensor parallelism on one node; further strategies are left out."""
    for name, settings in (document.get("strategy_overrides") or {}).items():
        size = settings.get("tp") if isinstance(settings, Mapping) and name == "single_node_tp" else None
        if isinstance(size, int):
            if size > 1:
                found.add_flag("tensor-parallel-size", size)
            settings = {key: value for key, value in settings.items() if key != "tp"}
        if settings:
            found.leave_out(f"strategy_overrides.{name}", "it is another way to start", _shown(settings))


def _shown(value: Any) -> str:
    text = " ".join(str(value).split())
    return f"It says: {text[:200]}{'…' if len(text) > 200 else ''}"
