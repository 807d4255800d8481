"""Wrong usage, answered with the command that works: what was typed, with its mistake put right.

It goes by the commands themselves, so that a new option needs nothing here.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from typer.core import TyperGroup

from toolkit.cli.help import EXAMPLES
from toolkit.errors import UsageError
from toolkit.words import our_word, suggest

# Values for arguments that were left out.
_VALUES = {"MODEL": "Qwen/Qwen3-8B", "NAME": "tiny-p-eagle", "PROMPT": "Hello", "RECIPE": "tiny/p-eagle"}
_MISSING, _EXTRA = "Missing argument", "Got unexpected extra argument"
_MISSING_OPTION, _SEVERAL = re.compile(r"Missing option '(--[\w-]+)'"), re.compile(r"requires (\d+) arguments")
_NOT_A_NUMBER = re.compile(r"unable to parse string as an? (number|integer)")
_NUMBER = re.compile(r"(\d+(?:\.\d+)?)\s*([kK]?)")
_NO_VALUE, _NEEDLESS_VALUE = "requires an argument", "does not take a value"
_OPTION_WITH_VALUE = re.compile(r"Invalid value for '(?P<option>--?[\w-]+)'")
_ONE_OF = re.compile(r"is not one of (?P<choices>'.*')")
_BOUND = re.compile(r"(?:greater|less) than or equal to (?P<bound>[\d.]+)")
_WRITE = re.compile(r"'(?P<wrong>[^']*)'.*: write (?P<right>[^\s,]+(?:,[^\s,]+)*)")
# What the parser puts around the reason.
_AROUND = re.compile(r"\. Did you mean .*|\s*\(Possible options: .*\)|Value error, |(?<=^)Invalid value: ")


def usage_error(message: str, option: str | None, root: TyperGroup, typed: Sequence[str]) -> UsageError:
    """The error for a command line that could not be read: `message` of the parser, `option` if it is about one."""
    said = _AROUND.sub("", message)
    return UsageError(said, hint=_hint(said, option, root, list(typed)))


def require_once(root: TyperGroup, typed: Sequence[str]) -> None:
    """Raise UsageError for an option with one value that is given twice: the parser would silently take the last."""
    _, command, _ = _command(root, typed)
    words = typed[: typed.index("--")] if "--" in typed else typed
    for option in getattr(command, "params", ()):
        given = [index for index, word in enumerate(words) if word.partition("=")[0] in option.opts]
        if len(given) < 2 or option.param_type_name != "option" or option.multiple or option.is_flag:
            continue
        name, hint = option.opts[0], f"Give {option.opts[0]} once."
        if "…" in str(option.metavar):
            values = [words[index].partition("=")[2] or "".join(words[index + 1 : index + 2]) for index in given]
            hint = f"Write: {name} {','.join(filter(None, values))}"
        raise UsageError(f"{name} is given {len(given)} times", hint=hint)


def _hint(message: str, option: str | None, root: TyperGroup, typed: list[str]) -> str:
    path, command, unknown = _command(root, typed)
    if unknown and not (option and path):  # else it is the value of an option that a group does not have
        return _other_command(unknown, path, command, typed)
    if option:
        return _option_hint(message, option, root, path, command, typed)
    if message.startswith(_MISSING):
        values = [_VALUES.get(name.upper(), "") for name in _required_from(command, message)]
        return _run([*typed, *values]) if values and all(values) else _example(path)
    if parts := _MISSING_OPTION.match(message):
        return _run([*typed, parts[1], parts[1].lstrip("-")])
    if message.startswith(_EXTRA):
        return _fewer(path, command, typed)
    if parts := _WRITE.search(message):
        return _run(_with(typed, parts["wrong"], parts["right"]))
    if parts := _OPTION_WITH_VALUE.match(message):
        return _other_value(message, parts["option"], path, command, typed)
    return _help(path)


def _required_from(command: Any, message: str) -> list[str]:
    """The required argument that the message calls missing, and those after it."""
    names = [param.name for param in command.params if param.param_type_name == "argument" and param.required]
    missing = re.findall(r"'(\w+)'", message)
    return names[names.index(missing[0]) :] if missing and missing[0] in names else missing


def _other_value(message: str, option: str, path: list[str], command: Any, typed: list[str]) -> str:
    """With a value that the option takes: the nearest choice, the limit, or what it usually has."""
    index = next(number for number, word in enumerate(typed) if word.partition("=")[0] == option)
    value = typed[index].partition("=")[2] or typed[index + 1]
    if bound := _ONE_OF.search(message):
        choices = re.findall(r"'([^']*)'", bound["choices"])
        near = suggest(value, choices, "platform", cutoff=0.4) or choices
        return _run(_with(typed, value, near[0]))
    bound = _BOUND.search(message)
    usual = bound["bound"] if bound else _number_in(value, message) or _usual(_spellings(command).get(option))
    return _run(_with(typed, value, usual)) if usual else _help(path)


def _number_in(value: str, message: str) -> str:
    """The number in a text where one is wanted, such as 5 in `5$` and 32768 in `32k`; empty if there is none."""
    kind, number = _NOT_A_NUMBER.search(message), _NUMBER.search(value)
    if not kind or not number:
        return ""
    meant_number = float(number[1]) * (1024 if number[2] else 1)
    return f"{meant_number:g}" if kind[1] == "number" else str(int(meant_number))


def _usual(parameter: Any) -> str:
    """A value that the option takes: its default, or the first of its choices; empty where there is neither."""
    choices = getattr(getattr(parameter, "type_descriptor", None), "choices", None) or ("",)
    default = getattr(parameter, "default", None)
    return str(choices[0] if default is None else default)


def _command(root: TyperGroup, typed: Sequence[str]) -> tuple[list[str], Any, str]:
    """The names of the command that was typed, the command, and the first word that should name one and does not."""
    path: list[str] = []
    command: Any = root
    is_value = False
    for word in typed:
        if is_value or word.startswith("-"):
            is_value = not is_value and "=" not in word and _takes_value(_spellings(command).get(word))
            continue
        if not isinstance(command, TyperGroup):
            break
        if word not in command.commands:
            return path, command, word
        path.append(word)
        command = command.commands[word]
    return path, command, ""


def _other_command(unknown: str, path: Sequence[str], group: TyperGroup, typed: list[str]) -> str:
    if not path and unknown in ("help", "version"):
        behind = typed[typed.index(unknown) + 1 :]
        return _run(["--version"]) if unknown == "version" else _help(behind)
    near = suggest(unknown, group.commands, *(() if path else ("command",)))
    if not near and "--model" in _spellings(group):  # of `recipes`, where such a word is a filter
        near = [f"--model={unknown}"]
    return _run(_with(typed, unknown, near[0])) if near else _help(path)


def _option_hint(message: str, option: str, root: TyperGroup, path: list[str], command: Any, typed: list[str]) -> str:
    here = _spellings(command)
    if _NO_VALUE in message:
        usual = _usual(here.get(option))
        return _run([*typed, usual]) if usual else _example(path)
    if several := _SEVERAL.search(message):
        given = len(typed) - typed.index(option) - 1
        names = here[option].metavar.split()[given : int(several[1])]
        return f"Such as: {_line([*typed, *names])}"
    if _NEEDLESS_VALUE in message:
        return _run([option if word.startswith(f"{option}=") else word for word in typed])
    written = next((word for word in typed if word.partition("=")[0] == option), None)
    written = written or next(word for word in typed if word.startswith(option))
    name = "--" + written.partition("=")[0].lstrip("-").replace("_", "-")
    if name in _spellings(root) and path:
        return _before_the_command(name, written, _takes_value(_spellings(root)[name]), typed)
    if instead := our_word(" ".join((*path, name)), "instead"):
        return _run(_with(_without(typed, written, with_value=False), path[0], instead))
    if our_word(name, "argument") and not all(map(_options_of, command.params)):
        return _run(_as_argument(typed, written))
    elsewhere = [other for other, its_command in root.commands.items() if name in _spellings(its_command)]
    if name not in here and our_word(name, "option") not in here and elsewhere:
        value = _takes_value(_spellings(root.commands[elsewhere[0]])[name])
        return f"`{name}` is an option of {', '.join(elsewhere)}. Without it: {_line(_without(typed, written, value))}"
    near = [name] if name in here else suggest(name, here, "option")
    if not near:
        return f"Its options: {_line([*path, '-h'])}"
    corrected = written.replace(written.partition("=")[0], near[0], 1)
    if path and typed.index(written) < typed.index(path[0]):
        value = _takes_value(here[near[0]])
        return _run([*_without(typed, written, value), corrected, *_take(typed, written, value)[1:]])
    return _run([corrected if word == written else word for word in typed])


def _as_argument(typed: Sequence[str], written: str) -> list[str]:
    """With the value of an option as an argument."""
    index, (_, joined, value) = typed.index(written), written.partition("=")
    return [*typed[:index], *([value] if joined else []), *typed[index + 1 :]]


def _before_the_command(name: str, written: str, value: bool, typed: list[str]) -> str:
    moved = [*_take(typed, written, value), *_without(typed, written, value)]
    return f"`{name}` stands before the command. {_run(moved)}"


def _fewer(path: list[str], command: Any, typed: list[str]) -> str:
    """Without the words that are too many: those of a prompt without quotes are joined, of others the first stay."""
    names = [parameter.name for parameter in command.params if not _options_of(parameter)]
    words = _words(command, typed[typed.index(path[-1]) + 1 :])
    rest = [word for word in typed if word not in words and word not in path]
    for text, parameter in _spellings(command).items():
        if "=" in (parameter.metavar or "") and text in rest and words[len(names) :]:
            value = rest[rest.index(text) + 1]
            return _run([word for word in _with(typed, value, f"{value}={words[-1]}") if word != words[-1]])
    kept = words[: len(names)]
    if names[-1:] == ["prompt"]:
        kept = [*words[: len(names) - 1], " ".join(words[len(names) - 1 :])]
    return _run([*path, *kept, *rest])


def _words(command: Any, typed: Sequence[str]) -> list[str]:
    """What was typed that is neither an option nor its value."""
    words, is_value, spellings = [], False, _spellings(command)
    for word in typed:
        if not is_value and not word.startswith("-"):
            words.append(word)
        is_value = not is_value and _takes_value(spellings.get(word))
    return words


def _options_of(parameter: Any) -> list[str]:
    return [text for text in (*parameter.opts, *parameter.secondary_opts) if text.startswith("-")]


def _spellings(command: Any) -> Mapping[str, Any]:
    return {text: parameter for parameter in command.params for text in _options_of(parameter)}


def _takes_value(parameter: Any) -> bool:
    return parameter is not None and not getattr(parameter, "is_flag", False)


def _with(typed: Sequence[str], old: str, new: str) -> list[str]:
    """With the first word `old`, or the value `old` of `--option=old`, replaced."""
    index_of_old = next(index for index, word in enumerate(typed) if old in (word, word.partition("=")[2]))
    return [*typed[:index_of_old], typed[index_of_old].removesuffix(old) + new, *typed[index_of_old + 1 :]]


def _take(typed: Sequence[str], word: str, with_value: bool) -> list[str]:
    index = typed.index(word)
    return list(typed[index : index + 1 + (with_value and "=" not in word)])


def _without(typed: Sequence[str], word: str, with_value: bool) -> list[str]:
    index = typed.index(word)
    return [*typed[:index], *typed[index + 1 + (with_value and "=" not in word) :]]


def _example(path: Sequence[str]) -> str:
    examples = EXAMPLES.get(path[0]) if path else None
    return f"Such as: {examples[0]}" if examples else _help(path)


def _help(path: Sequence[str]) -> str:
    return f"See: {_line([*path, '-h'])}"


def _line(words: Sequence[str]) -> str:
    return shlex.join(["toolkit", *words])


def _run(words: Sequence[str]) -> str:
    return f"Run: {_line(words)}"
