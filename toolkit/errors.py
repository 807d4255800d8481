"""Every error that the toolkit raises on purpose.

    ToolkitError                    base: a message, and the next step as `hint`
    ├── RecipeError                 the recipe cannot be used; carries every finding at once
    ├── RecipeNotFound              no such file or catalogue name
    ├── UnreadableRecipe            the file is not YAML, or cannot be read
    ├── UnreadableModel             a model lacks a file or holds a broken one
    │   └── HubError                it could not be read from the hub or from S3 (also a PlatformError)
    ├── UsageError                  the call itself makes no sense
    │   ├── AmbiguousEndpoint       several endpoints have that name
    │   └── MissingPackage          it needs a package of an extra that is not installed
    └── PlatformError               AWS, or the local platform, refused or failed
        ├── StalePlanError          what runs now is not what the plan was made from
        ├── ApplyError              an action failed; says what was done, how to continue, how to undo
        ├── BuildError              an image could not be built, copied or read; nothing half-made has a tag
        ├── NotCompiled             what an endpoint on Trainium starts with was not compiled
        ├── ContainerFailed         a container ended as it should not; carries cause and last lines
        │   ├── EndpointFailed      the endpoint's container died or never became healthy
        │   └── TrainingJobFailed   a training job failed or was stopped
        ├── Unavailable             it does not answer just now: the same again may work
        ├── WaitTimeout             still not ready when the time was up (also a TimeoutError)
        ├── EndpointNotFound        no such endpoint on that platform
        └── InvocationError         a request got an error for an answer, or none

The first five are mistakes of the caller: nothing was created. The others tell what the platform holds now.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from toolkit.findings import Finding
from toolkit.text import hide_secrets, inert
from toolkit.version import install_command


def reason(error: Exception) -> str:
    """What an error says: of a file without its number and path, which the message around it names already."""
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


class ToolkitError(Exception):
    """Base of all errors. `hint` is the edit or command that helps, empty when there is none.

    A secret that an answer or an address had in it is not shown.
    """

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(hide_secrets(message))
        self.message = hide_secrets(message)
        self.hint = hide_secrets(hint)

    def __str__(self) -> str:
        return inert(f"{self.message}\n  {self.hint}" if self.hint else self.message)

    def _render_traceback_(self) -> list[str]:
        """What a notebook shows: the message and the hint, without the lines of code in between."""
        return [f"{type(self).__name__}: {self}"]


class RecipeError(ToolkitError):
    """The recipe has errors; `findings` holds all of them, each with line, key and edit."""

    def __init__(self, recipe: str, findings: Sequence[Finding]) -> None:
        self.recipe = recipe
        self.findings = tuple(findings)
        super().__init__("\n".join(finding.line_for(recipe) for finding in self.findings))


class RecipeNotFound(ToolkitError):
    """There is no recipe of that path or name."""


class UnreadableRecipe(ToolkitError):
    """A recipe's file is not YAML, or cannot be read."""


class UnreadableModel(ToolkitError):
    """A model lacks a file or holds a broken one."""


class UsageError(ToolkitError):
    """The call makes no sense as written."""


class MissingPackage(UsageError):
    """A package of one of the extras is not installed."""

    def __init__(self, message: str, *, extra: str) -> None:
        super().__init__(message, hint=f"Run: {install_command(extra)}")


class AmbiguousEndpoint(UsageError):
    """Several endpoints have that name, in different scopes of a platform."""


class PlatformError(ToolkitError):
    """The platform refused or failed."""


class HubError(UnreadableModel, PlatformError):
    """A model could not be read from the hub or from S3: refused, not reached, or not what such a service answers."""


class StalePlanError(PlatformError):
    """What runs now differs from what the plan was made from."""


class ApplyError(PlatformError):
    """An action of a plan failed."""


class BuildError(PlatformError):
    """An image could not be built, copied or read."""


@dataclass(frozen=True)
class Cause:
    """Why an endpoint does not come up: `line` in the words of its container or of AWS, `hint` the edit to make.

    `code` is stable, `evidence` are at most five lines that show it, `fatal` says that another start would end alike.
    """

    code: str
    line: str
    hint: str
    evidence: tuple[str, ...] = ()
    fatal: bool = False


class NotCompiled(PlatformError):
    """What an endpoint starts with, on Trainium or warm, was not compiled, or for other settings."""


class ContainerFailed(PlatformError):
    """A container ended as it should not. `logs` holds its last lines, `cause` is None when unknown."""

    def __init__(self, message: str, *, hint: str = "", logs: Sequence[str] = (), cause: Cause | None = None) -> None:
        super().__init__(message, hint=hint)
        self.logs = tuple(logs)
        self.cause = cause


class EndpointFailed(ContainerFailed):
    """The endpoint failed, or cannot come up."""


class TrainingJobFailed(ContainerFailed):
    """A training job failed or was stopped."""


class Unavailable(PlatformError):
    """The platform does not answer, or is too busy to: the same again may work."""


class WaitTimeout(PlatformError, TimeoutError):
    """The endpoint was still not ready when the time was up."""


class EndpointNotFound(PlatformError):
    """There is no endpoint of that name on the platform."""


class InvocationError(PlatformError):
    """A request got an error for an answer, or none.

    `transient`: the model never began, so the same request may be sent again: throttled, nobody free, no connection.
    """

    def __init__(self, message: str, *, hint: str = "", transient: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.transient = transient
