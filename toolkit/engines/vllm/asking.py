"""vLLM itself says whether it takes a recipe: its parser and its configuration, of the version that the recipe names.

    recipe ──> question for each kind of accelerator ──> kept answer, or the installed vLLM (`answering`) ──> findings

A question holds flags as the container gets them, the models' configurations and what vLLM would ask the driver; no
path and no secret. Flags that are a risk, as those that run code, are left out. vLLM says one thing at a time: so the
flag that it means is taken out, and it is asked again.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from toolkit import documents
from toolkit.catalog.lookup import Instance
from toolkit.engines.arguments import flag_variables
from toolkit.engines.vllm.facts import variable_risk
from toolkit.engines.vllm.flags import OWN_FLAGS, switched_off, vllm_variables
from toolkit.engines.vllm.installed import installed, version_of
from toolkit.engines.vllm.process import NoAnswer, Vllm
from toolkit.engines.vllm.value_checks import risk_of
from toolkit.errors import PlatformError, ToolkitError
from toolkit.files import make_private_folder, write_whole
from toolkit.findings import Finding
from toolkit.home import containers_dir, home_folder
from toolkit.recipe.facts import Lock, ModelFacts
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.rules import Ask, EngineAnswer

FOLDER = "asked"
"""Of the toolkit's home: answers by the digest of their question."""

_TARGET, _DRAFTER = "target", "drafter"
"""The models' folders, where vLLM is asked."""

_MOST = 8
"""Refusals of one recipe, after which vLLM is not asked further."""

_SHOWN = 400
# They say nothing of the settings, and who has them is asked for no more.
_NOT_ASKED = ("api-key", "hf-token", "revision", "tokenizer-revision", "code-revision")
_OWN_KEYS = {flag: key.strip("`") for flag, key in OWN_FLAGS.items() if key.startswith("`")}
_PYDANTIC = re.compile(
    r"\d+ validation errors? for (?P<model>\w+)\n(?:(?P<field>\S[^\n]*)\n)?  (?:Value error, |Assertion failed, )?"
    r"(?P<says>.*?)(?: \[type=.*|\Z)",
    re.DOTALL,
)


@dataclass(frozen=True)
class Said:
    """What vLLM said of a recipe's key; `refused` is whether it takes it, or else it could not tell."""

    words: str
    key: str
    refused: bool = True


class Asked(Protocol):
    """A vLLM that answers."""

    def ask(self, question: Mapping[str, Any]) -> Mapping[str, str]:
        """Empty where it takes it; else its words under `refused`, or under `failed`. Raises NoAnswer."""


@cache
def running(pretends: bool, code: Path | None) -> Asked:
    """The process that answers, for as long as ours lives: a second question costs no second start.

    If it `pretends`, it answers as on GPUs that this machine need not have. `code` is where vLLM is, if not installed.
    """
    return Vllm(pretends, code=code)


def ask(
    recipe: Recipe, models: Lock | None, now: Ask, engine: Callable[[bool, Path | None], Asked] = running
) -> EngineAnswer:
    """What the recipe's vLLM says of it: kept answers, and unless they are kept, with `now`, vLLM itself."""
    version = recipe.engine.version or ""
    name = f"vLLM {version}"
    if why := _why_not(recipe, models):
        return EngineAnswer(name, why_not=why)
    assert models
    code: Path | None = None
    if version != installed():
        from toolkit.engines.vllm import fetched  # loads what only fetching needs

        code = fetched.folder(version)
    if code and not os.path.isdir(code):  # noqa: PTH112 - `Path` fails in somebody else's home, before Python 3.14
        if now != "deep":
            return EngineAnswer(name, why_not=f"{installed() or 'no vLLM'} is installed here", can_be_fetched=True)
        try:
            fetched.fetch(version)
        except ToolkitError as error:
            return EngineAnswer(name, why_not=error.message)
    found: dict[Said, list[str]] = {}
    for instance_type in recipe.platform.types if recipe.platform_rules.facts.has_instance_types else [""]:
        here = recipe.on(instance_type) if instance_type else recipe
        try:
            said = _said(here, instance_type, models, (lambda pretends: engine(pretends, code)) if now else None)
        except NoAnswer as error:
            return EngineAnswer(name, why_not=str(error))
        if said is None:
            return EngineAnswer(name, why_not="its answer is not kept", can_be_asked=True)
        for one in said:
            found.setdefault(one, []).append(instance_type)
    return EngineAnswer(name, findings=tuple(_finding(recipe, name, one, types) for one, types in found.items()))


def _why_not(recipe: Recipe, models: Lock | None) -> str:
    """Why it cannot be asked; empty where it can."""
    if sys.platform != "linux":
        return "it is asked on Linux only"
    if recipe.engine.version != installed():
        there = f"{installed() or 'no vLLM'} is installed here"
        if not recipe.platform_rules.facts.has_instance_types:  # on a CPU it asks for what is compiled
            return there
        if find_spec("torch") is None:
            return f"{there}, and no PyTorch, which its Python code needs"
    if models is None:
        return "the models are not known"
    if recipe.platform_rules.facts.has_instance_types:
        for name in recipe.platform.types:
            instance = recipe.platform_rules.instance(name)
            if instance is None or not instance.compute_capability:
                return f"nothing is known of a GPU of {name}"
    return ""


def _said(
    recipe: Recipe, instance_type: str, models: Lock, engine: Callable[[bool], Asked] | None
) -> tuple[Said, ...] | None:
    """The kept answer, or that of the engine, which is then kept; None without both."""
    instance = recipe.platform_rules.instance(instance_type) if instance_type else None
    question = _question(recipe, instance, models)
    file = home_folder(FOLDER) / f"{_digest(question, recipe.engine.version)}.json"
    kept = _kept(file)
    if kept is not None or engine is None:
        return kept
    said = tuple(_conversation(recipe, models, question, engine(instance is not None)))
    with suppress(OSError, PlatformError):  # such as on a full disk: it is asked again next time
        make_private_folder(file.parent)
        write_whole(file, json.dumps([asdict(one) for one in said]), new_mode=0o600)
    return said


def _kept(file: Path) -> tuple[Said, ...] | None:
    try:
        return documents.parse(tuple[Said, ...], documents.read_file(file))
    except (OSError, documents.Unfit):
        return None


def _question(recipe: Recipe, instance: Instance | None, models: Lock) -> dict[str, Any]:
    flags = {flag: value for flag, value in recipe.flags.items() if flag not in _NOT_ASKED and not risk_of(flag, value)}
    if recipe.nodes > 1:
        flags |= {"nnodes": recipe.nodes, "distributed-executor-backend": "mp"}
    flags["model"] = _TARGET
    if recipe.speculation is None:
        flags.pop("speculative-config", None)  # which only the toolkit writes, as its own checks say
    elif "speculative-config" in flags:
        config = {key: value for key, value in flags["speculative-config"].items() if key != "revision"}
        flags["speculative-config"] = {**config, "model": _DRAFTER} if models.drafter else config
    return {
        "flags": {**flag_variables(recipe, flags), **switched_off(recipe, recipe.engine.version)},
        "variables": _variables(recipe),
        "device": _device(instance) if instance else None,
        "models": {
            name: _files(facts) for name, facts in ((_TARGET, models.target), (_DRAFTER, models.drafter)) if facts
        },
    }


def _files(facts: ModelFacts) -> dict[str, Any]:
    return {"config.json": facts.config, "generation_config.json": facts.generation_config}


def _variables(recipe: Recipe) -> dict[str, str]:
    """vLLM's own, but those that name files or are a risk."""
    given = {**recipe.engine.env, **vllm_variables(recipe, {})}
    return {
        name: value
        for name, value in given.items()
        if name.startswith("VLLM_") and "/" not in value and variable_risk(name) is None
    }


def _device(instance: Instance) -> dict[str, Any]:
    return {
        "name": f"NVIDIA {instance.accelerator}",
        "capability": [int(part) for part in instance.compute_capability.split(".")],
        "bytes": instance.usable_bytes,
        "count": instance.accelerator_count,
    }


def _digest(question: Mapping[str, Any], version: str | None) -> str:
    """Of all that an answer depends on."""
    program = b"".join(Path(__file__).with_name(name).read_bytes() for name in ("asking.py", "answering.py"))
    versions = [version, version_of("transformers")]
    parts = json.dumps([question, versions], sort_keys=True).encode() + program
    return hashlib.sha256(parts).hexdigest()


def _conversation(recipe: Recipe, models: Lock, question: Mapping[str, Any], vllm: Asked) -> Iterator[Said]:
    """Ask until nothing is refused, each time without the flag that was.

    What is refused with any flags is no fault where the toolkit itself knows only a part of a model's configuration;
    of the drafter, the rest is asked without it.
    """
    question = {**question, "entrypoint": str(containers_dir() / "on-vllm" / "entrypoint.py")}
    answer = vllm.ask(question)
    for _ in range(_MOST):
        if not answer:
            return
        words, refused = _words(answer)
        for flag in _likely(recipe, words):
            without = _without(recipe, question, flag)
            after = vllm.ask(without) if without else answer
            if not after or _words(after) != (words, refused):
                yield Said(words, f"engine.args.{flag}", refused)
                question, answer = without, after
                break
        else:
            without = _without(recipe, question, "speculative-config")
            if without and (not refused or (models.drafter and models.drafter.partial)):
                yield Said(words, "speculation", refused=False)
                question, answer = without, vllm.ask(without)
                continue
            yield Said(words, _key_in(recipe, words), refused and not models.target.partial)
            return


def _words(answer: Mapping[str, str]) -> tuple[str, bool]:
    """vLLM's words on one line, and whether it refuses with them; what pydantic adds is left out."""
    refused = "refused" in answer
    text = answer["refused" if refused else "failed"]
    if found := _PYDANTIC.search(text):
        field = f"{found['field']}: " if found["field"] else ""
        text = f"{text[: found.start()]}{field}{found['says']}"
    line = re.sub(r"<function (\w+) at 0x[0-9a-f]+>", r"\1", " ".join(text.split()))
    return (line if len(line) <= _SHOWN else f"{line[:_SHOWN].rpartition(' ')[0]} …"), refused


def _likely(recipe: Recipe, words: str) -> list[str]:
    """The flags of `engine.args`, those that the words name first."""
    named = set(re.findall(r"[a-z][a-z0-9]*(?:[-_][a-z0-9]+)*", words.lower().replace("_", "-")))
    return sorted(recipe.engine.args, key=lambda flag: flag.replace("_", "-") not in named)


def _without(recipe: Recipe, question: Mapping[str, Any], flag: str) -> dict[str, Any]:
    """The question without that flag; empty where it has none."""
    variables = flag_variables(recipe, {flag: "", f"no-{flag}": ""})
    flags = {name: value for name, value in question["flags"].items() if name not in variables}
    return {**question, "flags": flags} if flags != question["flags"] else {}


def _key_in(recipe: Recipe, words: str) -> str:
    """The recipe's key for the first setting of the toolkit's own that the words name."""
    keys = {flag.replace("-", "_"): key for flag, key in _OWN_KEYS.items() if flag != "model"}
    if recipe.speculation:
        speculation = ("num_speculative_tokens", *recipe.speculation.settings)
        keys |= {key: f"speculation.{key}" for key in speculation}
    text = words.replace("-", "_")
    named = [(match.start(), key) for name, key in keys.items() if (match := re.search(rf"\b{name}\b", text))]
    return min(named, default=(0, "engine"))[1]


def _finding(recipe: Recipe, name: str, said: Said, types: list[str]) -> Finding:
    on = f" on {' and '.join(types)}" if types != [""] and len(types) < len(recipe.platform.types) else ""
    path = _path(recipe, said.key, types[0])
    if said.refused:
        hint = "Change it, or the setting it is about. The words are the engine's own."
        return Finding("engine.refused", f"{name} refuses this{on}: {said.words}", path, hint=hint)
    message = f"{name} could not be asked about this{on}: {said.words}"
    return Finding("engine.not-asked", message, path, hint="", severity="info")


def _path(recipe: Recipe, key: str, instance_type: str) -> str:
    """The key, or that of a flag of the instance type's own."""
    if own := recipe.platform.overrides.get(instance_type):
        for flag in own.args:
            if key == f"engine.args.{flag.replace('_', '-')}":
                return f"platform.instance_types.{recipe.platform.types.index(instance_type)}.args.{flag}"
    return key
