"""A recipe from a command line that starts vLLM. The line is read, never run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from textwrap import shorten
from typing import Any

from toolkit import documents
from toolkit.catalog import lookup, methods
from toolkit.engines.vllm.facts import alias_of, flag_removed, takes, whole_name
from toolkit.engines.vllm.flags import OWN_FLAGS
from toolkit.engines.vllm.keys import VllmSpeculation
from toolkit.engines.vllm.shell import commands, shell_text
from toolkit.engines.vllm.value_checks import risk_of
from toolkit.errors import UsageError
from toolkit.findings import Finding
from toolkit.recipe.imported import Imported
from toolkit.secret_values import secret_keys

ENGINE = "vllm"
_SERVER_MODULE = "vllm.entrypoints"
# Switches of `docker run` and `podman run`; all their other options take a value.
_DOCKER_LETTERS = "ditPq"
_DOCKER_SWITCHES = {
    f"--{name}"
    for name in (
        *("detach", "init", "interactive", "no-healthcheck", "oom-kill-disable", "privileged", "publish-all", "quiet"),
        *("read-only", "replace", "rm", "sig-proxy", "tls-verify", "tty", "use-api-socket"),
    )
}
_MOST_SHELLS = 3  # in one another
_SERVES = re.compile(r"\bvllm\s+serve\b|\bvllm\.entrypoints\b")
_TO_FILL_IN = re.compile(r"\$[{(]?[\w…]|<[\w -]+>")
_RUNS_CONTAINER = [[tool, "run"] for tool in ("docker", "podman", "nerdctl")]
_HINTS = {"api-key": "Who may ask is the platform's to decide."}
_READ_IT_THERE = "Have the container read it itself, such as from AWS Secrets Manager with its role."
_OPTIMIZATION = re.compile(r"-O(?:=?(\d))?")  # as vllm/utils/argparse_utils.py reads it
_SWITCH = {"true": True, "false": False}
_NODES = re.compile(r"[1-9]\d{0,3}")
_TAGGED_VERSION = re.compile(r"v?(\d+\.\d+\.\d+)(?:[-_].*)?")
# `32k` and `1M` are decimal, `32K` and `1Mi` binary (vllm/engine/arg_utils.py, human_readable_int).
_UNITS = {"k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}
# Flags that are keys of the speculative config: those of 0.22 and later, and those from before it was one flag.
_SPECULATION = {
    "spec-method": "method",
    "spec-model": "model",
    "spec-tokens": "num_speculative_tokens",
    "speculative-method": "method",
    "speculative-model": "model",
    "num-speculative-tokens": "num_speculative_tokens",
    "speculative-draft-tensor-parallel-size": "draft_tensor_parallel_size",
    "speculative-max-model-len": "max_model_len",
    "speculative-model-quantization": "quantization",
    "speculative-disable-by-batch-size": "disable_by_batch_size",
    "ngram-prompt-lookup-max": "prompt_lookup_max",
    "ngram-prompt-lookup-min": "prompt_lookup_min",
}
_METHOD_AS_MODEL = re.compile(r"\[(\w+)\]")  # --speculative-model "[ngram]"
_SECTION_KEYS = ("max_model_len", "max_num_seqs", "max_num_batched_tokens")

# A `max-model-len` that vLLM replaces by the longest that its memory holds.
_FITTED = ("auto", -1)


@dataclass
class VllmSettings(Imported):
    """Sections of a recipe while they are read from settings of vLLM. `drafting`: keys of its speculative config."""

    drafting: dict[str, Any] = field(default_factory=dict)

    def add_flag(self, flag: str, value: Any) -> None:
        """A flag of the server, without dashes, in the section where it belongs."""
        name = alias_of(flag) or flag
        if self.holds_secret(name, value):
            return
        if name == "speculative-config":
            self.drafting |= _config(value)
        elif name in _SPECULATION:
            method = _METHOD_AS_MODEL.fullmatch(str(value)) if name.endswith("-model") else None
            self.drafting |= {"method": method[1]} if method else {_SPECULATION[name]: value}
        elif name in ("model", "revision"):
            self.target[name] = value
        elif name == "tokenizer-revision" and value == self.target.get("revision"):
            return
        elif (key := name.replace("-", "_")) in _SECTION_KEYS and value not in _FITTED:
            self.engine[key] = _parse_number(value)
        elif name == "nnodes" and _NODES.fullmatch(str(value)):
            self.nodes = int(value)
        elif left_out := self._without_place(name, value):
            self.leave_out(*left_out)
        else:
            self.engine.setdefault("args", {})[name] = value

    def holds_secret(self, name: str, value: Any) -> bool:
        """Whether a flag, or a key of its JSON, is left out for a secret. Raises UsageError for one in speculation."""
        speculates = name.startswith("speculative-config") or name in _SPECULATION
        if speculates and (secrets := [*secret_keys(name, value)]):
            message = f"--{', --'.join(secrets)}: a secret must not stand in a recipe"
            hint = "Without it nothing would speculate: give the command with an address that holds none."
            raise UsageError(message, hint=hint)
        return self.is_left_out(f"--{name}", name, value, _HINTS.get(name, _READ_IT_THERE))

    def _without_place(self, name: str, value: Any) -> tuple[str, str, str] | None:
        """A flag that has no place in a recipe: its text, why, and a hint. Raises UsageError for another engine."""
        if name == "omni":
            raise other_engine("--omni starts vLLM-Omni")
        if name == "max-model-len" and value in _FITTED:
            hint = "`toolkit fit RECIPE` says how long it can be: add it to `engine` as `max_model_len`."
            return f"--{name} {value}", "a recipe has a number, or the model's own length", hint
        if name in OWN_FLAGS:
            return f"--{name} {value}", f"the toolkit sets it itself; a recipe has {OWN_FLAGS[name]}", ""
        if risk := risk_of(name, value):
            hint = f"If you trust that: add it to `engine.args`, and `allow: [{name}]` to `engine`."
            return f"--{name}", f"it {risk}", hint
        if "version" not in self.engine and (removed := flag_removed(name)):
            hint = "To keep it: an older `engine.version`, and it in `engine.args`."
            return f"--{name}", f"vLLM {removed} removed it, and the newest that works is taken", hint
        return None


def other_engine(what: str) -> UsageError:
    """The error for settings of vLLM-Omni."""
    hint = "vLLM-Omni serves images, sound and video; there is nothing to speculate on."
    return UsageError(f"{what}, which is another engine than vLLM", hint=hint)


def read_command(text: str) -> VllmSettings:
    """The recipe of `vllm serve …`, `python -m vllm.entrypoints…`, or `docker run … IMAGE …`.

    Raises UsageError if the text is none of these.
    """
    imported = VllmSettings("a vLLM command line")
    words = _server_command(text, imported)
    if words[:2] in _RUNS_CONTAINER:
        words = _without_docker(words, imported)
    for _ in range(_MOST_SHELLS):
        if (inner := shell_text(words)) is not None:
            words = _server_command(inner, imported)
    read_arguments(_server_arguments(words), imported)
    if not re.search(r"\w", str(imported.target.get("model", ""))):
        raise UsageError("the command names no model", hint="Write it: vllm serve MODEL …, or --model MODEL.")
    return imported


def read_arguments(arguments: Sequence[str], imported: VllmSettings) -> None:
    """Add the server's arguments: flags with their values, and the model if it stands by itself."""
    pending = list(arguments)
    objects: dict[str, dict[str, Any]] = {}
    while pending:
        word = pending.pop(0)
        if not word.startswith("-") or word == "-":
            if _TO_FILL_IN.search(word):
                imported.leave_out(word, "its value is to be filled in")
            elif "model" in imported.target:
                imported.leave_out(word, "it is no flag, and the model is named already")
            else:
                imported.target["model"] = word
            continue
        flag, inner, written = _split(word)
        texts = [*_values(flag, pending)] if written is None else [written]
        if (value := _given(imported, flag, inner, texts)) is None:
            continue
        if inner:
            objects[flag] = _nested(objects.get(flag), inner.split("."), value)
        elif isinstance(value, Mapping):
            objects[flag] = {**objects.get(flag, {}), **value}
        else:
            imported.add_flag(flag, value)
    for flag, value in objects.items():
        imported.add_flag(flag, value)


def _split(word: str) -> tuple[str, str, str | None]:
    """A flag's whole name, the path within its JSON, and the value if it stands in the same word."""
    if level := _OPTIMIZATION.fullmatch(word):
        return "optimization-level", "", level[1]
    name, equals, written = word.lstrip("-").partition("=")
    flag, _, inner = name.partition(".")
    if word.startswith("-O"):
        flag = "compilation-config"  # whose short name it was before it was a level
    whole = flag.replace("_", "-") if word.startswith("--") else whole_name(flag)
    return whole, inner, written if equals else None


def _config(value: Any) -> Mapping[str, Any]:
    config = decoded(value) if isinstance(value, str) else value
    if isinstance(config, Mapping):
        return config
    message = f"--speculative-config is no JSON object: {value}"
    raise UsageError(message, hint="""Write it in single quotes: --speculative-config '{"method": "eagle3", …}'""")


def add_speculation(imported: VllmSettings) -> None:
    """The engine's own configuration of speculation, once all of it is read, as the recipe's section."""
    settings = {key: value for key, value in imported.drafting.items() if value is not None}
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


def _server_command(text: str, imported: VllmSettings) -> list[str]:
    """The command that starts the server, of all that the text has; what was assigned for it becomes variables."""
    found = commands(text)
    server = next((index for index, (_, command) in enumerate(found) if _starts_server(command)), 0)
    for index, (variables, command) in enumerate(found):
        if index == server or (index < server and not command):
            for name, value in variables:
                imported.add_variable(name, value)
        elif command:
            shown = shorten(" ".join(command), 80, placeholder=" …")
            imported.leave_out(shown, "it is not part of the command that starts the server")
    return found[server][1]


def _starts_server(command: Sequence[str]) -> bool:
    inner = shell_text(command)
    return (
        command[:2] in _RUNS_CONTAINER
        or _first_argument(command) is not None
        or (inner is not None and _SERVES.search(inner) is not None)
    )


def _first_argument(command: Sequence[str]) -> int | None:
    """Where the arguments begin after `vllm serve` or `python -m vllm.entrypoints…`; None if it is neither."""
    for index, word in enumerate(command):
        if word.rpartition("/")[2] == ENGINE and command[index + 1 : index + 2] == ["serve"]:
            return index + 2
        if word.startswith(_SERVER_MODULE):
            return index + 1
    return None


def _without_docker(words: Sequence[str], imported: VllmSettings) -> list[str]:
    """The arguments of the image, whose tag is the engine's version."""
    rest, options = list(words[2:]), []
    while rest and rest[0].startswith("-"):
        option, value = _docker_option(rest)
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


def _docker_option(rest: list[str]) -> tuple[str, str]:
    """The next option with its value, taken out of `rest`. Letters may stand together, and before a value: -dp80."""
    word = rest.pop(0)
    if word.startswith("--"):
        option, equals, value = word.partition("=")
        is_complete = bool(equals) or option in _DOCKER_SWITCHES
    else:
        letter, value = (found := word.lstrip("-").lstrip(_DOCKER_LETTERS))[:1], found[1:].removeprefix("=")
        option, is_complete = f"-{letter}" if letter else word, not letter or bool(value)
    return option, value if is_complete or not rest else rest.pop(0)


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


def _server_arguments(words: list[str]) -> list[str]:
    """What follows `vllm serve`, `python -m vllm.entrypoints…` or an image."""
    if start := _first_argument(words):
        return words[start:]
    if words and (words[0].startswith("--") or words[0] == "serve" or (len(words) > 1 and words[1].startswith("--"))):
        return words[1:] if words[0] == "serve" else words
    hint = "Give `vllm serve MODEL …`, or `docker run … vllm/vllm-openai …`."
    raise UsageError("this is no command that starts a vLLM server", hint=hint)


def _values(flag: str, pending: list[str]) -> Iterator[str]:
    """The words after a flag that are its values, taken out of `pending`."""
    kind = takes(flag)
    if kind == "on_off" or flag.startswith("no-"):
        if pending and pending[0].lower() in _SWITCH:  # as earlier versions take it
            yield pending.pop(0)
        return
    while pending and (not pending[0].startswith("-") or re.fullmatch(r"-[\d.]+", pending[0])):
        yield pending.pop(0)
        if kind != "several":
            return


def _given(imported: VllmSettings, flag: str, inner: str, texts: Sequence[str]) -> Any:
    """The value of a flag, or of `inner`, a key of its JSON, from its texts; None where it is left out."""
    values, several = [decoded(text) for text in texts], takes(flag) == "several"
    if takes(flag) == "on_off":
        values = [_SWITCH.get(text.lower(), text) for text in texts]
    value: Any = True if not values else values if several else values[0]
    name = f"{flag}.{inner}" if inner else flag
    if imported.holds_secret(name, value):
        return None
    if several:  # each is one word, also where it is JSON (--lora-modules '{"name": …}')
        value = [
            text if isinstance(given, Mapping | list) else given for text, given in zip(texts, values, strict=True)
        ]
    if any(isinstance(value, str) and _TO_FILL_IN.search(value) for value in values):
        hint = f"Add `{flag}` to `engine.args` with its value."
        imported.leave_out(f"--{flag} {' '.join(texts)}", "its value is to be filled in", hint)
        return None
    return value


def _nested(before: Any, keys: Sequence[str], value: Any) -> dict[str, Any]:
    known = dict(before) if isinstance(before, Mapping) else {}
    first, *rest = keys
    known[first] = _nested(known.get(first), rest, value) if rest else value
    return known


def decoded(text: str) -> Any:
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
