"""The commands by name. Each is imported and built when it is asked for: all of them take longer than most do work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

import typer

_MODULES: Mapping[str, tuple[str, ...]] = {
    "docs_command": ("docs",),
    "new_command": ("new",),
    "import_command": ("import",),
    "recipes_command": ("recipes",),
    "recipe_commands": ("check", "plan", "build", "lock", "schema"),
    "fit_command": ("fit",),
    "compile_command": ("compile",),
    "convert_command": ("convert",),
    "endpoint_commands": ("deploy", "status", "invoke", "logs", "metrics", "watch", "rollback", "destroy"),
    "bench_command": ("prove", "bench"),
    "tune_command": ("tune",),
    "train_command": ("train",),
    "improve_command": ("improve",),
    "explain_command": ("explain",),
    "catalog_command": ("catalog",),
    "local_commands": ("local", "doctor"),
    "render_command": ("render",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


class CommandsByName(Mapping[str, Any]):
    """All commands, as typer's groups hold them."""

    def __init__(self) -> None:
        self._built: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._built:
            app = typer.Typer(rich_markup_mode=None)
            import_module(f"toolkit.cli.{_MODULE_OF[name]}").register(app)
            self._built.update(typer.main.get_group(app).commands)
        return self._built[name]

    def __iter__(self) -> Iterator[str]:
        return iter(_MODULE_OF)

    def __len__(self) -> int:
        return len(_MODULE_OF)
