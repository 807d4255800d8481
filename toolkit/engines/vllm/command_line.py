"""A recipe from a command line that starts vLLM. The line is read, never run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from toolkit import documents
from toolkit.catalog import lookup, methods
from toolkit.engines.vllm.facts import alias_of, takes
from toolkit.engines.vllm.flags import OWN_FLAGS
from toolkit.engines.vllm.keys import VllmSpeculation
from toolkit.engines.vllm.value_checks import risk_of
from toolkit.errors import UsageError
from toolkit.findings import Finding
from toolkit.recipe.imported import Imported

ENGINE = "vllm"
_SERVER_MODULE = "vllm.entrypoints"
_SHORT: Mapping[str, str] = lookup.read("engines/vllm.json")["short_flags"]
# Switches of `docker run`; all its other options take a value.
_DOCKER_SWITCH = re.compile(r"-[dit]+|--(detach|init|interactive|privileged|rm|tty)")
_HINTS = {"api-key": "Who may ask is the platform's to decide."}
_READ_IT_THERE = "Have the container read it itself, such as from AWS Secrets Manager with its role."
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_TAGGED_VERSION = re.compile(r"v?(\d+\.\d+\.\d+)(?:[-_].*)?")
# `32k` and `1M` are decimal, `32K` and `1Mi` binary (vllm/engine/arg_utils.py, human_readable_int).
_UNITS = {"k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}
_SECTION_KEYS = ("max_model_len", "max_num_seqs", "max_num_batched_tokens")


class VllmSettings(Imported):
    """Sections of a recipe while they are read from settings of vLLM."""

    def add_flag(self, flag: str, value: Any) -> None:
        """A flag of the server, without dashes, in the section where it belongs."""
        name = alias_of(flag) or flag
        if self.is_left_out(f"--{name}", name, value, _HINTS.get(name, _READ_IT_THERE)):
            return
        if name == "speculative-config":
            add_speculation(self, value)
        elif (key := name.replace("-", "_")) in _SECTION_KEYS:
            self.engine[key] = _parse_number(value)
        elif name == "model":
            self.target["model"] = value
        elif name == "revision":
            self.target["revision"] = value
        elif name == "tokenizer-revision" and value == self.target.get("revision"):
            return
        elif name in OWN_FLAGS:
            self.leave_out(f"--{name} {value}", f"the toolkit sets it itself; a recipe has {OWN_FLAGS[name]}")
        elif risk := risk_of(name, value):
            hint = f"If you trust that: add it to `engine.args`, and `allow: [{name}]` to `engine`."
            self.leave_out(f"--{name}", f"it {risk}", hint)
        else:
            self.engine.setdefault("args", {})[name] = value


def read_command(text: str) -> VllmSettings:
    """The recipe of `vllm serve …`, `python -m vllm.entrypoints…`, or `docker run … IMAGE …`.

    Raises UsageError if the text is none of these.
    """
    imported = VllmSettings("a vLLM command line")
    words = _without_shell(_words(text), imported)
    if words and words[0] in ("docker", "podman", "nerdctl"):
        words = _without_docker(words, imported)
    read_arguments(_server_arguments(words), imported)
    if "model" not in imported.target:
        raise UsageError("the command names no model", hint="Write it: vllm serve MODEL …, or --model MODEL.")
    return imported


def read_arguments(arguments: Sequence[str], imported: VllmSettings) -> None:
    """Add the server's arguments: flags with their values, and the model if it stands by itself."""
    pending = list(arguments)
    while pending:
        word = pending.pop(0)
        if not word.startswith("-") or word == "-":
            if "model" in imported.target:
                imported.leave_out(word, "it is no flag, and the model is named already")
            else:
                imported.target["model"] = word
            continue
        name, equals, written = word.lstrip("-").partition("=")
        flag, _, inner = (_SHORT.get(name, name) if not word.startswith("--") else name).partition(".")
        flag = flag.replace("_", "-")
        texts = [written] if equals else list(_values(flag, pending))
        _add(imported, flag, inner, texts)


def add_speculation(imported: VllmSettings, config: Any) -> None:
    """The engine's own configuration of speculation as the recipe's section."""
    if not isinstance(config, Mapping):
        message = f"--speculative-config is no JSON object: {config}"
        raise UsageError(message, hint="""Write it in single quotes: --speculative-config '{"method": "eagle3", …}'""")
    settings = {key: value for key, value in config.items() if value is not None}
    drafter = settings.get("model")
    method = _method(settings, drafter, imported)
    fixed = methods.method(method).engines[ENGINE].fixed
    known = VllmSpeculation.model_fields
    imported.speculation = {"method": method, **({"model": drafter} if drafter else {})}
    for key, value in settings.items():
        if key in ("method", "model") or fixed.get(key) == value:
            continue
        if key in known:
            imported.speculation[key] = _parse_number(value) if known[key].annotation is not str else value
        else:
            imported.leave_out(f"{key}: {value} of the speculative config", "a recipe has no such key")
    if drafter and drafter == imported.target.get("model") and methods.method(method).drafter == "optional":
        del imported.speculation["model"]


def _method(settings: Mapping[str, Any], drafter: str | None, imported: VllmSettings) -> str:
    """The recipe's method of a configuration. Where it names none, the drafter's own, as the engine finds it out."""
    if method := methods.configured(ENGINE, settings):
        return method
    named, known = settings.get("method"), ", ".join(item.name for item in methods.methods())
    if named and named in methods.names():
        return str(named)
    if named:
        raise UsageError(f"speculative method `{named}` is not among those of a recipe", hint=f"Known: {known}.")
    guess = _guess(drafter) if drafter else "ngram"
    hint = f"Write another one if that is wrong: {known}."
    message = f"the command names no method: `{guess}` is taken, by the drafter's name"
    imported.findings.append(Finding("import.guessed", message, "speculation.method", hint=hint, severity="warning"))
    return guess


def _guess(drafter: str) -> str:
    """The method of a drafter, by its name: of an assistant, the one that has no name in the engine."""
    if listed := lookup.head(drafter):
        return listed.method
    if "assistant" not in drafter:
        return "draft-model"
    of_engine = (item for item in methods.methods() if ENGINE in item.engines)
    return next((item.name for item in of_engine if not item.engines[ENGINE].method), "")


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text.replace("\\\r\n", " ").replace("\\\n", " "), comments=True)
    except ValueError as error:
        raise UsageError(f"not a command line: {error}", hint="Look for a quote that is not closed.") from error


def _without_shell(words: list[str], imported: VllmSettings) -> list[str]:
    """Without a prompt, `sudo`, and assignments, which become variables; up to where another command begins."""
    end = next(
        (index for index, word in enumerate(words) if word in ("&", "&&", "|", "||", ";", ">", ">>", "2>&1")),
        len(words),
    )
    if words[end:]:
        imported.leave_out(" ".join(words[end:]), "it is not part of the command that starts the server")
    rest = words[:end]
    while rest:
        if assigned := _ASSIGNMENT.fullmatch(rest[0]):
            imported.add_variable(assigned[1], assigned[2])
        elif rest[0] not in ("$", "#", "sudo", "nohup", "exec", "env", "export", "uv", "run", "uvx"):
            break
        rest = rest[1:]
    return rest


def _without_docker(words: Sequence[str], imported: VllmSettings) -> list[str]:
    """The arguments of the image, whose tag is the engine's version."""
    rest, options = list(words[2:]), []
    while rest and rest[0].startswith("-"):
        option, equals, value = rest.pop(0).partition("=")
        if not equals and not _DOCKER_SWITCH.fullmatch(option):
            value = rest.pop(0) if rest else ""
        if option in ("-e", "--env"):
            name, given, text = value.partition("=")
            imported.add_variable(name, text if given else f"${name}")
        else:
            options.append(f"{option} {value}".strip())
    if options:
        imported.leave_out(", ".join(options), "options of the container are the platform's")
    if not rest:
        raise UsageError("the command names no image", hint="Give the whole line: docker run … IMAGE --model MODEL …")
    _image(rest.pop(0), imported)
    return rest


def _image(image: str, imported: VllmSettings) -> None:
    tag = image.rpartition(":")[2] if ":" in image.rpartition("/")[2] else "latest"
    if version := _TAGGED_VERSION.fullmatch(tag):
        imported.engine["version"] = version[1]
        if not image.startswith("vllm/vllm-openai:"):
            hint = f"For this one: `container: {{base: {image}}}`."
            imported.leave_out(f"image {image}", f"AWS's image of {version[1]} is taken", hint)
        return
    hint = f"For this very image: `container: {{base: {image}}}` and its `engine.version`."
    imported.leave_out(f"image {image}", "its tag names no version, so that the newest that works is taken", hint)


def _server_arguments(words: Sequence[str]) -> list[str]:
    """What follows `vllm serve`, `python -m vllm.entrypoints…` or an image."""
    for index, word in enumerate(words):
        if word.rpartition("/")[2] == ENGINE and words[index + 1 : index + 2] == ["serve"]:
            return list(words[index + 2 :])
        if word.startswith(_SERVER_MODULE):
            return list(words[index + 1 :])
    if words and (words[0].startswith("--") or words[0] == "serve" or (len(words) > 1 and words[1].startswith("--"))):
        return [word for index, word in enumerate(words) if (index, word) != (0, "serve")]
    hint = "Give `vllm serve MODEL …`, or `docker run … vllm/vllm-openai …`."
    raise UsageError("this is no command that starts a vLLM server", hint=hint)


def _values(flag: str, pending: list[str]) -> Iterator[str]:
    """The words after a flag that are its values, taken out of `pending`."""
    kind = takes(flag)
    if kind == "on_off" or flag.startswith("no-"):
        return
    while pending and (not pending[0].startswith("-") or re.fullmatch(r"-[\d.]+", pending[0])):
        yield pending.pop(0)
        if kind != "several":
            return


def _add(imported: VllmSettings, flag: str, inner: str, texts: Sequence[str]) -> None:
    """A flag with the texts of its values. `--flag.key value` is a key of the flag's JSON."""
    values = [_value(text) for text in texts]
    value: Any = True if not values else values if takes(flag) == "several" else values[0]
    name = f"{flag}.{inner}" if inner else flag
    if imported.is_left_out(f"--{name}", name, value, _HINTS.get(name, _READ_IT_THERE)):
        return
    if any(isinstance(value, str) and re.search(r"\$\{?\w|<[\w -]+>", value) for value in values):
        hint = f"Add `{flag}` to `engine.args` with its value."
        imported.leave_out(f"--{flag} {' '.join(texts)}", "its value is to be filled in", hint)
        return
    if inner:
        value = _nested(imported.engine.get("args", {}).get(flag), inner.split("."), value)
    imported.add_flag(flag, value)


def _nested(before: Any, keys: Sequence[str], value: Any) -> dict[str, Any]:
    known = dict(before) if isinstance(before, Mapping) else {}
    first, *rest = keys
    known[first] = _nested(known.get(first), rest, value) if rest else value
    return known


def _value(text: str) -> Any:
    """A word as JSON if it is a number, an object or a list; else as the text that it is."""
    try:
        value = documents.decode(text)
    except documents.Unfit:
        return text
    return value if isinstance(value, int | float | dict | list) else text


def _parse_number(value: Any) -> Any:
    """A number, also as `32k`; anything else as it is."""
    number = re.fullmatch(r"(\d+(?:\.\d+)?)([kKmMgG]?)", value) if isinstance(value, str) else None
    return int(float(number[1]) * _UNITS.get(number[2], 1)) if number else value
