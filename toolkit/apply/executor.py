"""Execute the actions of a plan. Each is recorded before and after it happens."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol

from toolkit.apply.diagnose import diagnose
from toolkit.apply.progress import Progress
from toolkit.errors import ApplyError, PlatformError
from toolkit.planning.kinds import Kind
from toolkit.planning.plan import Action, Plan
from toolkit.planning.record import Record


class Writer(Protocol):
    """What executes actions: a platform."""

    @property
    def name(self) -> str:
        """The platform's name in recipes."""

    def execute(self, action: Action, progress: Progress) -> None:
        """Execute one action; it is idempotent. Raises PlatformError."""


class Executor(Writer, Protocol):
    """The writing side of a platform."""

    def lease(self, endpoint: str) -> AbstractContextManager[Callable[[], None]]:
        """A lock on the endpoint; its value checks that the lock is still ours. Both raise PlatformError."""


@dataclass(frozen=True)
class Leased:
    """A platform with a lease. A process that has lost its lease, because it was stopped for long, changes nothing."""

    platform: Executor
    confirm: Callable[[], None]

    @property
    def name(self) -> str:
        return self.platform.name

    def execute(self, action: Action, progress: Progress) -> None:
        """Execute one action. Raises PlatformError."""
        self.confirm()
        self.platform.execute(action, progress)


@contextmanager
def leased(platform: Executor, endpoint: str) -> Iterator[Leased]:
    """Hold the endpoint's lease. Raises PlatformError while somebody else is changing it."""
    with platform.lease(endpoint) as confirm:
        yield Leased(platform, confirm)


def make(plan: Plan, kinds: Sequence[Kind], platform: Writer, record: Record, progress: Progress) -> None:
    """Create, update and replace, in the plan's order, up to the endpoint. Raises ApplyError.

    Deletions that stand before the endpoint's update are executed too: the update needs them.
    """
    later = _needs_service(kinds)
    actions = [action for action in _without_last_deletes(plan) if action.verb == "delete" or action.kind not in later]
    _execute(plan, actions, platform, record, progress)


def complete(plan: Plan, kinds: Sequence[Kind], platform: Writer, record: Record, progress: Progress) -> None:
    """Create the resources that need an endpoint in service, such as scaling policies. Raises ApplyError."""
    later = _needs_service(kinds)
    actions = [action for action in plan.changes if action.verb != "delete" and action.kind in later]
    _execute(plan, actions, platform, record, progress)


def remove(plan: Plan, platform: Writer, record: Record, progress: Progress) -> None:
    """Execute the delete actions at the plan's end, in its order. Raises ApplyError."""
    _execute(plan, plan.changes[len(_without_last_deletes(plan)) :], platform, record, progress)


def _needs_service(kinds: Sequence[Kind]) -> set[str]:
    return {kind.kind for kind in kinds if kind.needs_service}


def _without_last_deletes(plan: Plan) -> Sequence[Action]:
    """The changes up to the last action that is not a deletion."""
    kept = [position for position, action in enumerate(plan.actions, start=1) if action.verb != "delete"]
    return [action for action in plan.actions[: max(kept, default=0)] if action.verb != "reuse"]


def _execute(plan: Plan, actions: Sequence[Action], platform: Writer, record: Record, progress: Progress) -> None:
    for position, action in enumerate(actions):
        record.write(plan, action, "started")
        try:
            with progress.stage(str(action)):
                platform.execute(action, progress)
        except KeyboardInterrupt:
            record.write(plan, action, "interrupted")
            raise
        except PlatformError as error:
            record.write(plan, action, "failed", error.message)
            done = f"{position} of {len(actions)} actions are done; they are recorded in {record.path}."
            name = plan.endpoints[0]
            undo = "" if "." in name else f", or remove everything: toolkit destroy {name}"  # no endpoint has a dot
            on = f"Run the same command again to resume{undo}"
            cause = diagnose((), error.message, platform.name)
            helps = error.hint or (cause.hint if cause else "")
            hint = f"{helps}\n  {done} {on}".strip()
            raise ApplyError(f"{action} failed: {error.message}", hint=hint) from error
        record.write(plan, action, "done")
