"""Calls that only look, and that we may not be allowed to make."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from toolkit.errors import PlatformError
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.errors import aws_errors
from toolkit.platforms.sagemaker.rules.checks.account import Unread

_T = TypeVar("_T")


@dataclass(frozen=True)
class Reading:
    """Asks AWS, and notes in `unread` what it did not get to know."""

    clients: Clients
    unread: list[Unread] = field(default_factory=list)

    def ask(self, what: str, action: str, call: Callable[[], _T]) -> _T | None:
        """What `call` returns; None when AWS refused or failed. `action` is what IAM calls the right to it."""
        try:
            with aws_errors(what):
                return call()
        except PlatformError as error:
            self.note(error.message, action)
        return None

    def note(self, message: str, action: str) -> None:
        """Something remains unknown."""
        self.unread.append(Unread(message, action))
