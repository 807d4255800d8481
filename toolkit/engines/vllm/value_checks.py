"""Does every value stay the value of its own flag, and does none ask for what is a risk?

A container's entrypoint turns variables into arguments: a text that reads as a JSON list becomes several, `true` a bare
flag, and vLLM's parser takes what begins with a dash for the next flag. So each value has to have the form that its
flag takes. Settings that run code, load files or let clients do more than generate are errors until `engine.allow`
names them: who reads the recipe then sees what it takes upon itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from typing import Any

from toolkit.engines.arguments import builds
from toolkit.engines.vllm.facts import (
    Risk,
    Takes,
    alias_of,
    flag_known,
    names,
    parsed_flag,
    risky_flags,
    short_for,
    takes,
    variable_risk,
)
from toolkit.engines.vllm.fields import Misfit, class_of, listed, misfits, reads_as, unlike
from toolkit.engines.vllm.installed import has_plugins
from toolkit.findings import Finding
from toolkit.recipe.facts import ModelFacts
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.unsafe import CODE_VARIABLES

_NUMBER = re.compile(r"-\d+|-\d*\.\d+")  # argparse takes only these for values, of all that begin with a dash
_CODE = "engine.flag-value"
_PARSED = {"int": "a whole number", "float": "a number", "json": "a value in JSON", "object": "a mapping"}
_PARSERS = {
    "reasoning-parser": "reasoning-parser-plugin",
    "tool-call-parser": "tool-parser-plugin",
    "config-format": "",
}
"""Flags that name a parser, by the flag of a plugin that may bring one."""

# What vLLM reads in a text in a way of its own, of which no declaration tells: a pattern, and what it takes.
_FORMS = {
    "chat-template": (r"(?s).*[^-.\d].*", "a template, or the name of its file"),
    "device-ids": (r"\s*(\d+|(GPU|MIG)-[^,]*)(,\s*(\d+|(GPU|MIG)-[^,]*))*\s*", "numbers of devices, or their ids"),
    "lora-modules": (r'[^,]*=[^,]*|(?=.*"name")(?=.*"path")\{.*', "name=path, or a mapping with `name` and `path`"),
    "mm-processor-device": ("auto|cpu|cuda|xpu|tpu|hpu|npu|rocm|musa", "auto, cpu, or the platform's kind of device"),
    "show-hidden-metrics-for-version": (r"(?i)v?(\d+!)?\d+(\.\d+)*([-._+a-z].*)?", "a version"),
}

_NONE = ("None", "")  # as vLLM's parser reads them

# The class of flags for images, audio and video, which vLLM makes for models that take them alone.
_MULTIMODAL = "MultiModalConfig"
_MODAL_LORAS = "default-mm-loras"


def check_values(recipe: Recipe) -> Iterator[Finding]:
    """Findings on the values of `engine.args`, and on variables that no process can be given."""
    version = recipe.engine.version
    for flag, value in recipe.engine.args.items():
        path = f"engine.args.{flag}"
        if other := alias_of(flag):
            hint = f"Write `{other}`, which the checks know."
            yield Finding(_CODE, f"`{flag}` is another name of `{other}`", path, hint=hint)
        whole = short_for(version, flag) if flag_known(version, flag) is False else ""
        if wrong := _wrong_form(value, takes(whole or flag)):
            message, hint = wrong
            yield Finding(_CODE, f"`{flag}` {message}", path, hint=hint)
        else:
            yield from _declared(whole or flag, value, version, unmade_classes(recipe), written=flag)
    yield from _parsers(recipe)
    for name, value in recipe.engine.env.items():
        if "\0" in value:
            yield Finding(_CODE, f"`{name}` has a NUL in it", f"engine.env.{name}", hint="Remove it.")


def unmade_classes(recipe: Recipe) -> Collection[str]:
    """Configuration classes that vLLM does not make for the recipe, or not for every target."""
    return (_MULTIMODAL, *(() if recipe.engine.args.get("enable-lora") else ("LoRAConfig",)))


def _declared(
    flag: str, value: Any, version: str, unmade: Collection[str] = (), written: str = ""
) -> Iterator[Finding]:
    """Findings on a value that this version does not take, by its configuration classes, or by its parser's choices.

    `written` is what the recipe calls the flag, which may be its beginning only.
    """
    several = takes(flag) == "several"
    values = value if isinstance(value, list) and several else [value]
    wrong = [*misfits(flag, values if several else value, version, unmade)] or [*_unread(flag, value, values, version)]
    for one in wrong:
        whole = ".".join(filter(None, (written or flag, one.key)))
        message = f"`{whole}` {one.what}, which vLLM {version} does not take"
        yield Finding(_CODE, message, f"engine.args.{whole}", hint=one.hint)


def _unread(flag: str, value: Any, values: list[Any], version: str) -> Iterator[Misfit]:
    """What the parser, or a form of vLLM's own, does not allow; `values` has each of several."""
    known = parsed_flag(flag, version)
    texts = [str(one).lower().replace("-", "_") if known.any_case else one for one in values]
    if known.choices and not set(map(str, texts)) <= {*known.choices}:
        yield unlike(value, known.choices)
    elif flag in _FORMS and not all(one in _NONE or re.fullmatch(_FORMS[flag][0], _plain(one)) for one in values):
        yield unlike(value, (), _FORMS[flag][1])
    elif known.parsed and not all(reads_as(flag, one, version) for one in values):
        yield Misfit("", f"has the value {value!r}", f"It takes {_PARSED[known.parsed]}.")


def _parsers(recipe: Recipe) -> Iterator[Finding]:
    """Findings on parsers that this version does not have; a plugin may bring one of any name.

    That of tool calls is looked up only where the model may choose to call (vLLM 0.32: validate_api_server_args).
    """
    args, version = recipe.engine.args, recipe.engine.version
    used = [flag for flag in _PARSERS if flag != "tool-call-parser" or args.get("enable-auto-tool-choice")]
    for flag, plugin in ((flag, _PARSERS[flag]) for flag in used):
        known, value = names(flag.replace("-", "_"), version), args.get(flag)
        if flag == "config-format":
            known = (*known, "auto") if known else ()
        if known and value is not None and plugin not in args and str(value) not in known:
            wrong = unlike(value, known)
            message = f"`{flag}` {wrong.what}, which vLLM {version} does not have"
            hint = f"{wrong.hint} One of a plugin needs `{plugin}`, too." if plugin else wrong.hint
            yield Finding(_CODE, message, f"engine.args.{flag}", hint=hint)


def check_multimodal(recipe: Recipe, target: ModelFacts) -> Iterator[Finding]:
    """Findings on flags for images, audio and video, which models of text ignore, their bounds too."""
    version = recipe.engine.version
    given = {flag: value for flag, value in recipe.engine.args.items() if class_of(flag, version) == _MULTIMODAL}
    architecture = target.architecture
    if recipe.engine.args.get(_MODAL_LORAS) and architecture in names("text", version):
        message, path = f"`{_MODAL_LORAS}` is refused: {architecture} takes text alone", f"engine.args.{_MODAL_LORAS}"
        yield Finding(_CODE, message, path, hint="Remove it.")
    for flag, value in given.items():
        if architecture in names("text", version):
            message = f"`{flag}` has no effect: {architecture} takes text alone"
            path = f"engine.args.{flag}"
            yield Finding("engine.text-only", message, path, hint="Remove it.", severity="warning")
        elif architecture in names("multimodal", version) and not any(
            _declared(flag, value, version, (_MULTIMODAL,))
        ):  # else check_values has told
            yield from _declared(flag, value, version)


def check_quantization(recipe: Recipe, target: ModelFacts) -> Iterator[Finding]:
    """A finding on a method that this version does not have; an image or environment of one's own may bring any.

    Of a target that is quantized, the flag only has to agree with it (checks/models.py).
    """
    if target.config.get("quantization_config") or target.text_config.get("quantization_config"):
        return
    value = recipe.engine.args.get("quantization")
    known = listed("quantization", recipe.engine.version)
    if not isinstance(value, str) or value.startswith("-"):  # a flag, as check_values tells
        return
    if known and value.lower() not in (*known, "none") and not (has_own_image(recipe) or _uses_plugins(recipe)):
        wrong = unlike(value, known)
        message = f"`quantization` {wrong.what}, which vLLM {recipe.engine.version} does not have"
        yield Finding(_CODE, message, "engine.args.quantization", hint=wrong.hint)
    elif value in names("quantized_before", recipe.engine.version) and not _may_be_quantized(recipe, target):
        message = f"`{value}` is for weights that are so quantized already, and this config.json tells of none"
        hint = "Remove it, or take a checkpoint that is quantized so."
        yield Finding("engine.quantization", message, "engine.args.quantization", hint=hint)


def has_own_image(recipe: Recipe) -> bool:
    """Whether its image may have another vLLM than the one that is published for NVIDIA's GPUs."""
    container = recipe.container
    if container is None:
        return False
    base = container.base or "vllm/vllm-openai:"
    return bool(container.dockerfile or container.wheels) or not base.startswith("vllm/vllm-openai:")


def _uses_plugins(recipe: Recipe) -> bool:
    """Whether it runs in this environment, with packages that add to vLLM. Looking for them takes 30 ms."""
    return not (recipe.platform_rules.facts.has_instance_types or builds(recipe)) and has_plugins()


def _may_be_quantized(recipe: Recipe, target: ModelFacts) -> bool:
    """Whether a file, a setting or what is not known of the model may say that its weights are quantized."""
    told = ("quant" in name for name in (*target.files, *target.others, str(recipe.engine.args.get("hf-overrides"))))
    return target.partial or any(told) or any("scale" in name or "qweight" in name for name in target.tensors or ())


def _wrong_form(value: Any, kind: Takes | None) -> tuple[str, str] | None:
    """What is wrong with the value, and the edit."""
    if kind == "on_off":
        return None if isinstance(value, bool) else ("is on or off", "Write true or false, without quotes.")
    if isinstance(value, bool):
        return ("takes a value, not true or false", "Write the value.") if kind in ("one", "several") else None
    if isinstance(value, list) and kind in ("one", "optional"):
        return "takes one value, not a list", "Write one value."
    texts = value if isinstance(value, list) else [value]
    problems = (_wrong_text(text, alone=text is value, kind=kind) for text in texts if isinstance(text, str))
    return next((wrong for wrong in problems if wrong), None)


def _wrong_text(text: str, *, alone: bool, kind: Takes | None) -> tuple[str, str] | None:
    if text.startswith("-") and not _NUMBER.fullmatch(text):
        return f"has the value {text!r}, which the engine takes for another flag", "Write a value without the dash."
    if "\0" in text:
        return "has a NUL in its value", "Remove it."
    if not alone:
        return None
    if text.strip().lower() in ("", "true", "false"):
        return f"has the text {text!r}, which the container takes for a switch", "Write the value, or remove the flag."
    if _documents(text) != 1 and kind != "json_list":
        edit = "Write a YAML list." if kind == "several" else "Write one value."
        return "has a text that the container takes for several values", edit
    return None


def _documents(text: str) -> int:
    """How many arguments the entrypoints of containers make of a text."""
    documents, rest = [], text.strip()
    while rest:
        try:
            document, end = json.JSONDecoder().raw_decode(rest)
        except (ValueError, RecursionError):
            return 1
        documents.append(document)
        rest = rest[end:].lstrip()
    if len(documents) == 1 and isinstance(documents[0], list):
        return -1  # not one value, however many elements it has
    return len(documents) if all(isinstance(document, dict) for document in documents) else 1


_RISK = "engine.risk"


def check_risks(recipe: Recipe) -> Iterator[Finding]:
    """Findings on flags and variables that are a risk, and on names in `engine.allow` that have no use."""
    risks = dict(_risks(recipe))
    for name, (path, risk) in risks.items():
        if name not in recipe.engine.allow:
            hint = f"Remove it; or, if you trust that, write `allow: [{name}]` in `engine`."
            yield Finding(_RISK, f"`{name}` {risk}", path, hint=hint)
    of_types = {flag.replace("_", "-") for item in recipe.platform.overrides.values() for flag in item.args}
    for index, name in enumerate(recipe.engine.allow):
        if name not in risks and name not in of_types:
            message = f"`{name}` is allowed, and nothing in the recipe needs it"
            yield Finding(_RISK, message, f"engine.allow.{index}", hint="Remove it.", severity="warning")


def _risks(recipe: Recipe) -> Iterator[tuple[str, tuple[str, str]]]:
    """Path and risk, by the name that allows it."""
    for flag, value in recipe.engine.args.items():
        for name in _spelled_out(flag):
            if _is_meant(risky_flags()[name], value):
                yield name, (f"engine.args.{flag}", risky_flags()[name].risk)
    for variable in recipe.engine.env:
        risk = "decides what code the engine's process runs" if variable in CODE_VARIABLES else variable_risk(variable)
        if risk:
            yield variable, (f"engine.env.{variable}", risk)


def risk_of(flag: str, value: Any) -> str:
    """What a flag with that value does that a model does not need; empty if nothing."""
    risks = (risky_flags()[name] for name in _spelled_out(flag))
    return next((item.risk for item in risks if _is_meant(item, value)), "")


def _spelled_out(flag: str) -> list[str]:
    """The flag itself, or all that it may be short for: the engine's parser takes a beginning for the whole."""
    if takes(flag):
        return [flag] if flag in risky_flags() else []
    return [name for name in risky_flags() if name.startswith(flag)]


def _is_meant(risk: Risk, value: Any) -> bool:
    if value is False:
        return False
    return re.search(risk.only, _plain(value)) is not None


def _plain(value: Any) -> str:
    """The value as text; JSON always in the same spelling, in which no letter is escaped."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return str(value)
    if isinstance(value, str):
        return value
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
