"""`toolkit completion SHELL`: a script that completes commands, options and recipes without starting Python.

All words stand in the script, so an answer takes a few milliseconds; after an update of the toolkit make it anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

import typer

from toolkit.recipe.known import catalogue

Shell = Literal["bash", "zsh", "fish"]
Words = Mapping[str, Sequence[str]]
"""The words that may follow a command: its options, commands below it, and recipes where it takes one."""


def completion(context: typer.Context, shell: Annotated[Shell, typer.Argument(help="Of which shell.")]) -> None:
    """Print a script for the shell that completes commands, options and the names of recipes.

    For bash: `toolkit completion bash > ~/.local/share/bash-completion/completions/toolkit`.
    For zsh: `toolkit completion zsh > ~/.zfunc/_toolkit`, with `fpath+=~/.zfunc` before `compinit` in ~/.zshrc.
    For fish: `toolkit completion fish > ~/.config/fish/completions/toolkit.fish`.
    """
    assert context.parent is not None
    words = words_of(context.parent.command)
    print(_SCRIPTS[shell](words), end="")  # noqa: T201


def words_of(commands: Any) -> Words:
    """All that may follow `toolkit` and each of its commands."""
    found = {"": [*_options(commands), *commands.commands]}
    for name in commands.commands:
        command = commands.get_command(None, name)
        below = list(getattr(command, "commands", {}))
        takes = any(each.name and each.name.startswith("recipe") for each in command.params)
        found[name] = [*_options(command), *below, *(catalogue() if takes else ())]
    return found


def _options(command: Any) -> Iterator[str]:
    for parameter in command.params:
        yield from (option for option in (*parameter.opts, *parameter.secondary_opts) if option.startswith("--"))
    yield "--help"


def _bash(words: Words) -> str:
    """Files complete, too: where no word fits, bash falls back on them."""
    cases = "\n".join(f"    '{name}') words='{' '.join(words[name])}' ;;" for name in words)
    return f"""_toolkit() {{
  local words word command='' index
  for ((index = 1; index < COMP_CWORD; index++)); do
    word=${{COMP_WORDS[index]}}
    if [[ $word == --region || $word == --profile ]]; then ((index++)); continue; fi
    if [[ $word != -* ]]; then command=$word; break; fi
  done
  case $command in
{cases}
    *) words='' ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
complete -o default -o bashdefault -F _toolkit toolkit
"""


def _zsh(words: Words) -> str:
    cases = "\n".join(f"    '{name}') found=({' '.join(words[name])}) ;;" for name in words)
    return f"""#compdef toolkit
_toolkit() {{
  local -a found
  local word command=''
  for word in ${{words[2,CURRENT-1]}}; do
    if [[ $word != -* ]]; then command=$word; break; fi
  done
  case $command in
{cases}
  esac
  compadd -- $found
  [[ -n $command ]] && _files
  return 0
}}
if [[ $funcstack[1] == _toolkit ]]; then _toolkit "$@"; else compdef _toolkit toolkit; fi
"""


def _fish(words: Words) -> str:
    first = [word for word in words[""] if not word.startswith("-")]
    lines = [f"complete -c toolkit -n __fish_use_subcommand -f -a '{' '.join(first)}'"]
    for name, following in words.items():
        when = f"__fish_seen_subcommand_from {name}" if name else "__fish_use_subcommand"
        options = (word.removeprefix("--") for word in following if word.startswith("--"))
        lines += [f"complete -c toolkit -n '{when}' -l {option}" for option in dict.fromkeys(options)]
        others = " ".join(word for word in following if not word.startswith("-"))
        if name and others:
            lines.append(f"complete -c toolkit -n '{when}' -a '{others}'")
    return "\n".join(lines) + "\n"


_SCRIPTS = {"bash": _bash, "zsh": _zsh, "fish": _fish}
