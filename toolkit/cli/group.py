"""The command line as a whole: its help in groups, and wrong usage answered with the command that works."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from typer.core import TyperGroup
from typer.exceptions import TyperException

from toolkit.cli.help import EXAMPLES, GROUPS
from toolkit.cli.usage import usage_error

_TYPED = "toolkit.typed"
_FIRST_SENTENCE = 200  # characters, more than any has


class Commands(TyperGroup):
    """The commands of the toolkit."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """With its examples below the options."""
        command = self.commands.get(cmd_name)
        if command and cmd_name in EXAMPLES:
            unwrapped = "\b\n"
            command.epilog = unwrapped + "\n".join(["Examples:", *(f"  {line}" for line in EXAMPLES[cmd_name])])
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
        try:
            return super().invoke(ctx)
        except TyperException as error:
            self._explain(error, ctx.meta[_TYPED])
            raise

    def _explain(self, error: TyperException, typed: Sequence[str]) -> None:
        """Raise UsageError, unless what was raised is the help of a group of which no command was given."""
        if type(error).__name__ != "NoArgsIsHelpError":
            raise usage_error(error.format_message(), getattr(error, "option_name", None), self, typed) from error

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """A section for each group; a command is described by its first sentence, whole."""
        widest = max(map(len, self.commands))
        for title, names in GROUPS.items():
            rows = [
                (name.ljust(widest), self.commands[name].get_short_help_str(_FIRST_SENTENCE))
                for name in names
                if name in self.commands
            ]
            with formatter.section(title):
                formatter.write_dl(rows)
