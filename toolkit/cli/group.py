"""The command line as a whole: its help in groups, and wrong usage answered with the command that works."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

from toolkit.cli.help import EXAMPLES, GROUPS
from toolkit.cli.usage import require_once, usage_error

_TYPED = "toolkit.typed"
# An option with its value, what stands in quotes, or a word.
_PARTS = re.compile(r"--?\w\S*(?: (?![-|])(?:'[^']*'|\S+))?|'[^']*'|\S+")
_FIRST_SENTENCE = 200  # characters, more than any has
# A docstring, or what is given to typer.Typer.
_HELP = re.compile(r'"""(.+?)"""|Typer\([^)]*help="(.+?)"', re.DOTALL)


class Commands(TyperGroup):
    """The commands of the toolkit."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = cast(Any, CommandsByName())

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """With its examples below the options, those of a group's commands too."""
        command = self.commands.get(cmd_name)
        if command and cmd_name in EXAMPLES:
            command.epilog = _epilog(EXAMPLES[cmd_name])
            for name, below in getattr(command, "commands", {}).items():
                start = f"toolkit {cmd_name} {name}"
                below.epilog = _epilog([line for line in EXAMPLES[cmd_name] if line.startswith(start)])
        return command

    def make_context(self, info_name: Any, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """The arguments are kept as they were typed, for the hint if they cannot be read."""
        typed = tuple(args)
        try:
            context = super().make_context(info_name, args, parent, **extra)
        except TyperException as error:
            self._explain(error, typed)
            raise
        context.meta[_TYPED] = typed
        return context

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was typed; wrong usage of it is answered with what works."""
        typed = ctx.meta[_TYPED]
        require_once(self, typed)
        try:
            return super().invoke(ctx)
        except TyperException as error:
            self._explain(error, typed)
            raise

    def _explain(self, error: TyperException, typed: Sequence[str]) -> None:
        """Raise UsageError, unless what was raised is the help of a group of which no command was given."""
        if type(error).__name__ != "NoArgsIsHelpError":
            raise usage_error(error.format_message(), getattr(error, "option_name", None), self, typed) from error

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """A section for each group; a command is described by its first sentence, whole."""
        widest = max(map(len, self.commands))
        for title, names in GROUPS.items():
            rows = [(name.ljust(widest), first_sentence(name)) for name in names]
            with formatter.section(title):
                formatter.write_dl(rows)


def _epilog(examples: Sequence[str]) -> str:
    unwrapped = "\b\n"
    return unwrapped + "\n".join(["Examples:", *(line for example in examples for line in _fold(example))])


def _fold(example: str) -> Iterator[str]:
    """A command over as many lines as the terminal needs; a shell reads them as one."""
    room = shutil.get_terminal_size().columns - len("      ") - len(" \\")
    line = " "
    for word in _PARTS.findall(example):
        if len(line) + len(word) >= room and line.strip():
            yield f"{line} \\"
            line = "     "
        line += f" {word}"
    yield line


def first_sentence(name: str) -> str:
    """Of a command's help, read from its module's text: to import all commands takes twice as long as all else."""
    text = Path(__file__).with_name(f"{_MODULE_OF[name]}.py").read_text(encoding="utf-8")
    made = re.search(rf"^(?:def {name}_?\(|{name} = typer)", text, re.MULTILINE)
    said = _HELP.search(text, made.start()) if made else None
    return TyperCommand(name, help=said[1] or said[2] if said else "").get_short_help_str(_FIRST_SENTENCE)


_MODULES: Mapping[str, tuple[str, ...]] = {
    "new_command": ("new", "import"),
    "recipes_command": ("recipes",),
    "recipe_commands": ("check", "lock", "schema", "fit"),
    "plan_command": ("plan",),
    "build_command": ("build",),
    "render_command": ("render",),
    "endpoint_commands": ("deploy", "invoke", "logs", "metrics", "watch", "rollback", "pause", "destroy"),
    "status_command": ("status",),
    "clean_command": ("clean",),
    "bench_command": ("prove", "bench"),
    "tune_command": ("tune", "improve"),
    "study_command": ("study",),
    "advise_command": ("advise",),
    "register_command": ("register",),
    "make_commands": ("compile", "convert", "train"),
    "explain_commands": ("docs", "explain"),
    "catalog_command": ("catalog",),
    "local_commands": ("local", "doctor"),
    "completion_command": ("completion",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


class CommandsByName(Mapping[str, Any]):
    """All commands, as typer's groups hold them, each imported when it is asked for.

    A command is the function or the group of its name in its module, with `_` behind it if that is a word of Python's.
    """

    def __init__(self) -> None:
        self._built: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._built:
            module, app = import_module(f"toolkit.cli.{_MODULE_OF[name]}"), typer.Typer(rich_markup_mode=None)
            made = getattr(module, name, None) or getattr(module, f"{name}_")
            if isinstance(made, typer.Typer):
                app.add_typer(made, name=name)
            else:
                app.command(name)(made)
            self._built |= typer.main.get_group(app).commands
        return self._built[name]

    def __iter__(self) -> Iterator[str]:
        return iter(_MODULE_OF)

    def __len__(self) -> int:
        return len(_MODULE_OF)
