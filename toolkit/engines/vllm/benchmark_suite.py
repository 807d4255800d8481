"""A recipe from one of AWS's inference benchmark suite.

github aws-samples/sagemaker-genai-hosting-examples@089da29d, 07-benchmark/sagemaker-inference-benchmark-suite/recipes:
`deployment` has model, instance, container, vllm, speculative_decoding, prefix_caching and endpoint.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolkit.engines.vllm.command_line import VllmSettings, add_speculation
from toolkit.engines.vllm.flags import PREFIX
from toolkit.errors import UsageError

_KNOWN = {"model", "instance", "container", "vllm", "speculative_decoding", "prefix_caching", "endpoint"}


def is_suite(document: Mapping[str, Any]) -> bool:
    """Whether it is a recipe of the benchmark suite."""
    deployment = document.get("deployment")
    return (
        isinstance(deployment, Mapping) and isinstance(deployment.get("model"), Mapping) and "id" in deployment["model"]
    )


def read_suite(document: Mapping[str, Any]) -> VllmSettings:
    """The recipe of a suite's file. Raises UsageError for a container of another engine."""
    found = VllmSettings("a recipe of AWS's inference benchmark suite")
    deployment = document["deployment"]
    found.target["model"] = str(deployment["model"]["id"])
    if deployment["model"].get("trust_remote_code"):
        found.add_flag("trust-remote-code", True)
    _container(deployment.get("container") or {}, found)
    _engine(deployment.get("vllm") or {}, found)
    _speculation(deployment.get("speculative_decoding") or {}, found)
    caching = (deployment.get("prefix_caching") or {}).get("enabled")
    if caching is not None:
        found.add_flag("enable-prefix-caching" if caching else "no-enable-prefix-caching", True)
    _add_hardware(deployment, found)
    for key in sorted({*deployment} - _KNOWN):
        found.leave_out(f"deployment.{key}", "a recipe has nothing like it")
    _benchmark(document, found)
    return found


def _container(container: Mapping[str, Any], found: VllmSettings) -> None:
    kind = str(container.get("type", "vllm-dlc"))
    if "vllm" not in kind:
        raise UsageError(
            f"deployment.container.type is {kind}, another engine than vLLM", hint="Import one of its vllm-dlc recipes."
        )
    if "version" in container:
        found.engine["version"] = str(container["version"])


def _engine(settings: Mapping[str, Any], found: VllmSettings) -> None:
    for key, value in settings.items():
        if key == "extra_env":
            for name, text in (value or {}).items():
                _variable(str(name), str(text), found)
        elif value is not None and not (key == "trust_remote_code" and not value):
            found.add_flag(key.replace("_", "-"), value)


def _variable(name: str, text: str, found: VllmSettings) -> None:
    """A variable, or the flag that the image makes of it."""
    if not name.startswith(PREFIX):
        found.add_variable(name, text)
        return
    flag = name.removeprefix(PREFIX).lower().replace("_", "-")
    found.add_flag(flag, True if text.lower() in ("", "true") else text)


def _speculation(settings: Mapping[str, Any], found: VllmSettings) -> None:
    if settings.get("enabled"):
        add_speculation(found, {key: value for key, value in settings.items() if key != "enabled"})


def _add_hardware(deployment: Mapping[str, Any], found: VllmSettings) -> None:
    instance, endpoint = deployment.get("instance") or {}, deployment.get("endpoint") or {}
    if "type" in instance:
        found.platform["instance_types"] = [str(instance["type"])]
    if instance.get("count", 1) != 1:
        found.leave_out(
            f"instance.count {instance['count']}",
            "one serves",
            f"Add `scaling: {{min_instances: {instance['count']}, max_instances: {instance['count']}}}`.",
        )
    if "region" in endpoint:
        found.platform["region"] = str(endpoint["region"])
    if "health_check_timeout" in endpoint:
        found.platform["health_check_timeout"] = endpoint["health_check_timeout"]
    if endpoint.get("pattern", "standard") != "standard":
        found.leave_out(
            f"endpoint.pattern {endpoint['pattern']}",
            "a plain endpoint is made",
            "Add `inference_component: {}` to `platform`.",
        )
    if role := endpoint.get("role_arn"):
        found.leave_out(
            f"endpoint.role_arn {role}",
            "the role of your session is taken",
            "Add `role: ARN` to `platform` for another one.",
        )


def _benchmark(document: Mapping[str, Any], found: VllmSettings) -> None:
    benchmark = document.get("benchmark") or {}
    levels = ",".join(map(str, benchmark.get("concurrency_levels") or ()))
    if benchmark:
        option = f" --concurrency {levels}" if levels else ""
        found.leave_out("benchmark", "it is a command here", f"Run: toolkit bench RECIPE{option}")
    for key in ("pipeline", "cost", "version"):
        if document.get(key):
            found.leave_out(key, "the toolkit has its own")
