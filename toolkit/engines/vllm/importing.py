"""Settings that others wrote for vLLM.

A command line; YAML of github vllm-project/recipes, or for `vllm serve --config`; a recipe of AWS's inference benchmark
suite (github aws-samples/sagemaker-genai-hosting-examples@089da29d, 07-benchmark/sagemaker-inference-benchmark-suite/
recipes), whose `deployment` has model, instance, container, vllm, speculative_decoding, prefix_caching and endpoint; a
container of SageMaker.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from toolkit.engines.vllm.command_line import (
    VllmSettings,
    add_speculation,
    decoded,
    other_engine,
    read_arguments,
    read_command,
)
from toolkit.engines.vllm.facts import takes
from toolkit.engines.vllm.flags import PREFIX
from toolkit.engines.vllm.importing_container import read_container
from toolkit.errors import UsageError
from toolkit.recipe.imported import Imported
from toolkit.secret_values import secret_keys

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
_OTHER_ENGINE = "vllm-omni"
_SPECULATIVE = "speculative"
_FLAG_AND_VALUE = re.compile(r"--[\w.-]+\s+\S")


def read_settings(settings: str | Mapping[str, Any], variant: str | None) -> Imported | None:
    """A command line, or the document of a file in YAML, as a recipe's sections; None for another format."""
    imported = _read(settings, variant)
    if imported and imported.drafting:
        add_speculation(imported)
    return imported


def _read(settings: str | Mapping[str, Any], variant: str | None) -> VllmSettings | None:
    if isinstance(settings, str):
        return read_command(settings)
    if isinstance(settings.get("Environment"), Mapping):
        return read_container(settings)
    model, deployment = settings.get("model"), settings.get("deployment")
    deployed = deployment.get("model") if isinstance(deployment, Mapping) else None
    if isinstance(deployed, Mapping) and "id" in deployed:
        return _read_suite(settings)
    if isinstance(model, Mapping) and "model_id" in model:
        return _read_collected(settings, variant)
    if isinstance(model, str) and not any(isinstance(settings.get(key), Mapping) for key in ("target", "engine")):
        return _read_configuration(settings)
    return None


def _read_collected(document: Mapping[str, Any], variant: str | None) -> VllmSettings:
    """A recipe of vllm-project/recipes, with its features that are on by default and that for speculation.

    `variant` is one of its `variants`, such as `fp8`. Raises UsageError for one that it does not have.
    """
    model, imported = document["model"], VllmSettings("a recipe of vllm-project/recipes")
    if _OTHER_ENGINE in str(model.get("docker_image")):
        raise other_engine(f"its image is of {_OTHER_ENGINE}")
    chosen = _variant(document, variant)
    imported.target["model"] = str(chosen.get("model_id", model["model_id"]))
    for arguments in (model.get("base_args"), chosen.get("extra_args"), chosen.get("args")):
        read_arguments(_separate_words(arguments), imported)
    for variables in (model.get("base_env"), chosen.get("extra_env"), chosen.get("env")):
        for name, value in (variables or {}).items():
            imported.add_variable(str(name), str(value))
    _features(document, imported)
    _strategy(document, imported)
    if "min_vllm_version" in model:
        imported.leave_out(f"min_vllm_version {model['min_vllm_version']}", "the newest version that works is taken")
    for key in sorted({*model} - _OF_MODEL):
        why = "it is not for an endpoint's engine, or the toolkit chooses it"
        imported.leave_out(f"model.{key}", why, _show(model[key]))
    for key in [key for key, value in document.items() if key not in _DESCRIPTIVE and value]:
        if key != "strategy_overrides":
            imported.leave_out(key, "it is for other hardware or other ways to start", _show(document[key]))
    return imported


def _read_configuration(document: Mapping[str, Any]) -> VllmSettings:
    """A configuration file of `vllm serve`: flags with their values."""
    imported = VllmSettings("a configuration file of vLLM")
    for key, value in sorted(document.items(), key=lambda item: item[0] != "model"):
        flag = str(key).replace("_", "-")
        if flag in ("env", "environment") and isinstance(value, Mapping):
            for name, text in value.items():
                imported.add_variable(str(name), str(text))
        else:
            # A version that takes no mapping here is given JSON as text.
            is_text = isinstance(value, str) and takes(flag) != "several"
            imported.add_flag(flag, decoded(value) if is_text else value)
    return imported


def _variant(document: Mapping[str, Any], wanted: str | None) -> Mapping[str, Any]:
    variants = document.get("variants") or {}
    if wanted is None:
        return variants.get("default") or {}
    if wanted not in variants:
        raise UsageError(f"it has no variant `{wanted}`", hint=f"Its variants: {', '.join(variants) or 'none'}.")
    chosen: Mapping[str, Any] = variants[wanted]
    return chosen


def _separate_words(arguments: Sequence[Any] | None) -> list[str]:
    """A list of arguments, of which some have a flag and its value in one text: `--max-model-len auto`."""
    texts = [str(argument) for argument in arguments or ()]
    return [word for text in texts for word in (text.split(maxsplit=1) if _FLAG_AND_VALUE.match(text) else [text])]


def _features(document: Mapping[str, Any], imported: VllmSettings) -> None:
    """The flags of features that are on by default, and of speculation."""
    optional = document.get("opt_in_features") or ()
    for name, feature in (document.get("features") or {}).items():
        words = _separate_words(feature.get("args"))
        if name in optional and not any(_SPECULATIVE in word for word in words):
            hint = "Add its flags to `engine.args`."
            imported.leave_out(f"feature {name} ({' '.join(words)})", "it is off by default", hint)
        elif words:
            read_arguments(words, imported)


def _strategy(document: Mapping[str, Any], imported: VllmSettings) -> None:
    """The tensor parallelism on one node; further strategies are left out."""
    for name, settings in (document.get("strategy_overrides") or {}).items():
        size = settings.get("tp") if isinstance(settings, Mapping) and name == "single_node_tp" else None
        if isinstance(size, int):
            if size > 1:
                imported.add_flag("tensor-parallel-size", size)
            settings = {key: value for key, value in settings.items() if key != "tp"}
        if settings:
            imported.leave_out(f"strategy_overrides.{name}", "it is another way to start", _show(settings))


def _show(value: Any) -> str:
    if [*secret_keys("", value)]:
        return "It holds a secret."
    text = " ".join(str(value).split())
    return f"It says: {text[:200]}{'…' if len(text) > 200 else ''}"


_KNOWN = {"model", "instance", "container", "vllm", "speculative_decoding", "prefix_caching", "endpoint"}


def _read_suite(document: Mapping[str, Any]) -> VllmSettings:
    """The recipe of a suite's file. Raises UsageError for a container of another engine."""
    imported = VllmSettings("a recipe of AWS's inference benchmark suite")
    deployment = document["deployment"]
    imported.target["model"] = str(deployment["model"]["id"])
    if deployment["model"].get("trust_remote_code"):
        imported.add_flag("trust-remote-code", True)
    _container(deployment.get("container") or {}, imported)
    _engine(deployment.get("vllm") or {}, imported)
    speculation = dict(deployment.get("speculative_decoding") or {})
    if speculation.pop("enabled", False):
        imported.drafting |= speculation
    caching = (deployment.get("prefix_caching") or {}).get("enabled")
    if caching is not None:
        imported.add_flag("enable-prefix-caching" if caching else "no-enable-prefix-caching", True)
    _add_hardware(deployment, imported)
    for key in sorted({*deployment} - _KNOWN):
        imported.leave_out(f"deployment.{key}", "a recipe has nothing like it")
    _benchmark(document, imported)
    return imported


def _container(container: Mapping[str, Any], imported: VllmSettings) -> None:
    kind = str(container.get("type", "vllm-dlc"))
    if "vllm" not in kind:
        hint = "Import one of its vllm-dlc recipes."
        raise UsageError(f"deployment.container.type is {kind}, another engine than vLLM", hint=hint)
    if "version" in container:
        imported.engine["version"] = str(container["version"])


def _engine(settings: Mapping[str, Any], imported: VllmSettings) -> None:
    for key, value in settings.items():
        if key == "extra_env":
            for name, text in (value or {}).items():
                _variable(str(name), str(text), imported)
        elif value is not None and not (key == "trust_remote_code" and not value):
            imported.add_flag(key.replace("_", "-"), value)


def _variable(name: str, text: str, imported: VllmSettings) -> None:
    """A variable, or the flag that the image makes of it."""
    if not name.startswith(PREFIX):
        imported.add_variable(name, text)
        return
    flag = name.removeprefix(PREFIX).lower().replace("_", "-")
    imported.add_flag(flag, True if text.lower() in ("", "true") else decoded(text))


def _add_hardware(deployment: Mapping[str, Any], imported: VllmSettings) -> None:
    instance, endpoint = deployment.get("instance") or {}, deployment.get("endpoint") or {}
    if "type" in instance:
        imported.platform["instance_types"] = [str(instance["type"])]
    if instance.get("count", 1) != 1:
        count = instance["count"]
        hint = f"Add `scaling: {{min_instances: {count}, max_instances: {count}}}`."
        imported.leave_out(f"instance.count {count}", "one serves", hint)
    if "region" in endpoint:
        imported.platform["region"] = str(endpoint["region"])
    if "health_check_timeout" in endpoint:
        imported.platform["health_check_timeout"] = endpoint["health_check_timeout"]
    if endpoint.get("pattern", "standard") != "standard":
        hint = "Add `inference_component: {}` to `platform`."
        imported.leave_out(f"endpoint.pattern {endpoint['pattern']}", "a plain endpoint is made", hint)
    if role := endpoint.get("role_arn"):
        hint = "Add `role: ARN` to `platform` for another one."
        imported.leave_out(f"endpoint.role_arn {role}", "the role of your session is taken", hint)


def _benchmark(document: Mapping[str, Any], imported: VllmSettings) -> None:
    benchmark = document.get("benchmark") or {}
    levels = ",".join(map(str, benchmark.get("concurrency_levels") or ()))
    if benchmark:
        option = f" --concurrency {levels}" if levels else ""
        imported.leave_out("benchmark", "it is a command here", f"Run: toolkit bench RECIPE{option}")
    for key in ("pipeline", "cost", "version"):
        if document.get(key):
            imported.leave_out(key, "the toolkit has its own")
