"""Commands as a shell reads them, of texts that are read and never run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise

from toolkit.errors import UsageError
from toolkit.secret_values import secret_keys

_BEFORE_A_COMMAND = ("$", "#", "sudo", "nohup", "exec", "env", "export", "uv", "run", "uvx")
_SEPARATORS = ("&", "&&", "|", "||", ">", ">>", "2>&1")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_SHELL = re.compile(r"(?:.*/)?(?:ba|da|z)?sh")
_SHELL_OPTION = re.compile(r"-[a-z]*c")  # -c, -lc, -xec
# $NAME, ${NAME} and ${NAME:-default}; $(command) stands for what nobody runs here.
_REFERENCE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)(?::?[-=]([^{}]*))?\})")
_SUBSTITUTION = re.compile(r"\$\((?:[^()]|\([^()]*\))*\)")
_SUBSTITUTED = "$(…)"
# What is in quotes, or escaped, is the group; the rest is a comment.
_COMMENT = re.compile(r"""('[^']*'|"(?:\\.|[^"\\])*"|\\.)|(?<![^\s;&|])#[^\n]*""", re.DOTALL)
_MOST_FILLED = 8 * 1024

Command = tuple[list[tuple[str, str]], list[str]]
"""The variables that are assigned, and the words of the command."""


def commands(text: str) -> list[Command]:
    """The commands of a text, with the values of variables that it assigns itself. Raises UsageError."""
    return _filled(_commands(_words(text)))


def shell_text(command: Sequence[str]) -> str | None:
    """The commands that a shell is given as one word: `bash -c "…"`, or `-c "…"` where the shell is the entrypoint."""
    for index, (option, text) in enumerate(pairwise(command)):
        if _SHELL_OPTION.fullmatch(option) and (index == 0 or _SHELL.fullmatch(command[index - 1])):
            return text
    return None


def _words(text: str) -> list[str]:
    """The words of a text as a shell reads them; ends of lines and semicolons are words of their own."""
    whole_lines = _SUBSTITUTION.sub(_SUBSTITUTED, re.sub(r"\\[ \t]*(\r?\n|\Z)", " ", text))
    # The lexer would end a word at its `#`, and take a comment's end of line for a part of it.
    without_comments = _COMMENT.sub(lambda match: match[1] or "", whole_lines)
    lexer = shlex.shlex(without_comments, posix=True, punctuation_chars="\n;")
    lexer.commenters, lexer.whitespace, lexer.whitespace_split = "", " \t\r", True
    try:
        return list(lexer)
    except ValueError as error:
        raise UsageError(f"not a command line: {error}", hint="Look for a quote that is not closed.") from error


def _filled(read: Iterable[list[str]]) -> list[Command]:
    """Each command with what commands before it assigned, which is no variable of the server where a word takes it.

    What looks like a secret is not filled in.
    """
    known: dict[str, str] = {}
    taken: set[str] = set()
    room = _MOST_FILLED

    def value(reference: re.Match[str]) -> str:
        nonlocal room
        name = reference[1] or reference[2]
        taken.add(name)
        default = reference[3]
        if default is not None and [*secret_keys(name, default)]:
            default = f"${{{name}}}"
        text = known.get(name, reference[0] if default is None else default)
        room -= len(text)
        if room < 0:
            message = f"its variables stand for more than {_MOST_FILLED:,} characters"
            raise UsageError(message, hint="Give the command that starts the server alone.")
        return text

    filled: list[Command] = []
    for command in read:
        variables, words = _without_prompt(command)
        variables = [(name, _REFERENCE.sub(value, text)) for name, text in variables]
        filled.append((variables, [*_expanded(words, value)]))
        if not words:
            known |= {name: text for name, text in variables if not [*secret_keys(name, text)]}
    return [
        (variables if command else [pair for pair in variables if pair[0] not in taken], command)
        for variables, command in filled
    ]


def _expanded(words: Sequence[str], value: Callable[[re.Match[str]], str]) -> Iterator[str]:
    """The words with their variables' values. One that is a command, or flags, is several: quotes are gone here."""
    for index, word in enumerate(words):
        text = _REFERENCE.sub(value, word)
        is_several = _REFERENCE.fullmatch(word) and (index == 0 or text.startswith("-"))
        yield from _words(text) if is_several else (text,)


def _commands(words: Sequence[str]) -> Iterator[list[str]]:
    """The commands among words. A line that begins with a flag goes on with the line before it."""
    command: list[str] = []
    for word, after in zip(words, [*words, ""][1:], strict=True):
        ends = bool(word) and not word.strip("\n;")
        line_ends = ends and ";" not in word
        if word in _SEPARATORS or (ends and not (line_ends and after.startswith("-"))):
            yield command
            command = []
        elif not line_ends:
            command.append(word)
    yield command


def _without_prompt(command: list[str]) -> Command:
    """The variables that are assigned, and the command without them, a prompt, `sudo` and the like."""
    variables, rest = [], command
    while rest:
        if assigned := _ASSIGNMENT.fullmatch(rest[0]):
            variables.append((assigned[1], assigned[2]))
        elif rest[0] not in _BEFORE_A_COMMAND:
            break
        rest = rest[1:]
    return variables, rest
