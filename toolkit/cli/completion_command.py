"""`toolkit completion SHELL`: a script that completes commands, options and recipes without starting Python.

All words stand in the script, so an answer takes a few milliseconds; after an update of the toolkit make it anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args, get_origin

import typer
from typer.core import TyperArgument, TyperOption

from toolkit.recipe.known import catalogue

Shell = Literal["bash", "zsh", "fish"]

_ARE_RECIPES = ("recipe", "recipes", "name", "names", "what")  # arguments; an endpoint's name may be its recipe's


@dataclass(frozen=True)
class Following:
    """What may follow a command: words, of its options those that take a value with its choices, recipes, files."""

    words: Sequence[str]
    values: Mapping[str, Following]
    recipes: bool
    files: bool


def completion(context: typer.Context, shell: Annotated[Shell, typer.Argument(help="The shell.")]) -> None:
    """Print a script for the shell that completes commands, options and the names of recipes.

    For bash: `toolkit completion bash > ~/.local/share/bash-completion/completions/toolkit`.
    For zsh: `toolkit completion zsh > ~/.zfunc/_toolkit`, with `fpath+=~/.zfunc` before `compinit` in ~/.zshrc.
    For fish: `toolkit completion fish > ~/.config/fish/completions/toolkit.fish`.
    """
    assert context.parent is not None
    commands = dict(_commands("", context.parent.command))
    # What comes after a command and an option that takes a value, and after a command alone.
    values = {f"{path} {option}": value for path, each in commands.items() for option, value in each.values.items()}
    print(_SCRIPTS[shell](commands, values), end="")  # noqa: T201


def _commands(path: str, command: Any) -> Iterator[tuple[str, Following]]:
    """What follows `toolkit`, and each of its commands, such as ` local stop`."""
    arguments = [each for each in command.params if isinstance(each, TyperArgument)]
    options = [each for each in command.params if isinstance(each, TyperOption)]
    below = list(getattr(command, "commands", {}))
    yield (
        path,
        Following(
            words=[*_written(options), "--help", *below, *(word for each in arguments for word in _choices(each))],
            values={name: _value(each) for each in options if not each.is_flag for name in _written([each])},
            recipes=any(each.name in _ARE_RECIPES for each in arguments),
            files=any(not _choices(each) for each in arguments),
        ),
    )
    for name in below:
        yield from _commands(f"{path} {name}", command.get_command(None, name))


def _written(options: Sequence[TyperOption]) -> list[str]:
    return [name for each in options for name in (*each.opts, *each.secondary_opts) if name.startswith("--")]


def _value(option: TyperOption) -> Following:
    choices = _choices(option)
    return Following(choices, {}, recipes=option.metavar == "WHAT", files=not choices)


def _choices(parameter: Any) -> Sequence[str]:
    annotation = parameter.type_descriptor.annotation
    return get_args(annotation) if get_origin(annotation) is Literal else ()


Places = Mapping[str, Following]
"""What follows at each place of a command line: after a command, or after an option that takes a value."""


def _bash(commands: Places, values: Places) -> str:
    """Files complete, too: where no word fits, bash falls back on them. It makes three words of `--option=value`."""
    words = _words({**commands, **values}, """'{place}') words="{words}" ;;""")
    return f"""_toolkit() {{
  local recipes='{" ".join(catalogue())}'
  local current=${{COMP_WORDS[COMP_CWORD]}} words='' command='' awaited='' word index
  for ((index = 1; index < COMP_CWORD; index++)); do
    word=${{COMP_WORDS[index]}}
    if [[ -n $awaited ]]; then
      [[ $word == = ]] || awaited=''
      continue
    fi
    case "$command $word" in
      {_patterns(values)}) awaited=$word ;;
      {_patterns(commands)}) command="$command $word" ;;
    esac
  done
  [[ $current == = ]] && current=''
  case "$command${{awaited:+ $awaited}}" in
{words}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
  if [[ $words == *"$recipes" ]]; then
    while IFS= read -r word; do
      [[ $word == '~'* ]] && word=$HOME${{word:1}}
      COMPREPLY+=("$(printf %q "$word")")
    done < <(compgen -f -X '!*.y*ml' -- "$current")
  fi
}}
complete -o default -o bashdefault -F _toolkit toolkit
"""


def _zsh(commands: Places, values: Places) -> str:
    places = {**commands, **values}
    return f"""#compdef toolkit
_toolkit() {{
  local -a found recipes=({" ".join(catalogue())})
  local word command='' awaited=''
  for word in "${{(@)words[2,CURRENT-1]}}"; do
    if [[ -n $awaited ]]; then awaited=''; continue; fi
    case "$command $word" in
      {_patterns(values)}) awaited=$word ;;
      {_patterns(commands)}) command="$command $word" ;;
    esac
  done
  if compset -P '--*='; then awaited=${{IPREFIX%=}}; fi
  case "$command${{awaited:+ $awaited}}" in
{_words(places, "'{place}') found=({words}) ;;")}
  esac
  (( $#found )) && compadd -- $found
  case "$command${{awaited:+ $awaited}}" in
    {_patterns({place: each for place, each in places.items() if each.files})}) _files ;;
  esac
  return 0
}}
if [[ $funcstack[1] == _toolkit ]]; then _toolkit "$@"
elif (( $+functions[compdef] )); then compdef _toolkit toolkit; fi
"""


def _fish(commands: Places, values: Places) -> str:
    places = {**commands, **values}
    return f"""function __toolkit_following
  set -l recipes {" ".join(catalogue())}
  set -l typed (commandline -opc)
  set -l current (commandline -ct)
  set -l prefix ''
  set -l command ''
  set -l awaited ''
  set -l found
  for word in $typed[2..-1]
    if test -n "$awaited"
      set awaited ''
      continue
    end
    switch "$command $word"
      case {_patterns(values, " ")}
        set awaited $word
      case {_patterns(commands, " ")}
        set command "$command $word"
    end
  end
  if string match -qr -- '^--[^=]+=' $current
    set prefix (string replace -r -- '=.*' '=' $current)
    set awaited (string replace -r -- '=.*' '' $current)
    set current (string replace -r -- '^[^=]*=' '' $current)
  end
  set -l place $command
  test -n "$awaited"; and set place "$command $awaited"
  switch "$place"
{_words(places, "case '{place}'; set found {words}")}
  end
  switch "$place"
    case {_patterns({place: each for place, each in places.items() if each.files}, " ")}
      set found $found (__fish_complete_path $current | string replace -r '\\t.*' '')
  end
  test -n "$found"; and printf '%s\\n' $prefix$found
end
complete -c toolkit -f -a '(__toolkit_following)'
"""


def _patterns(places: Places, between: str = "|") -> str:
    return between.join(f"'{place}'" for place in places if place)


def _words(places: Places, line: str) -> str:
    """A line of a shell's `case` for each place after which words may come; recipes are the last of them."""
    lines = []
    for place, each in places.items():
        if words := [*each.words, *(["$recipes"] if each.recipes else [])]:
            lines.append(f"    {line.format(place=place, words=' '.join(words))}")
    return "\n".join(lines)


_SCRIPTS = {"bash": _bash, "zsh": _zsh, "fish": _fish}
