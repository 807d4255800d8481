"""Apply a plan: a loop over its actions, each recorded before and after it happens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from toolkit.apply.progress import Progress
from toolkit.errors import ApplyError, PlatformError
from toolkit.planning.plan import Action, Plan
from toolkit.planning.record import Record


class Executor(Protocol):
    """The writing side of a platform."""

    def execute(self, action: Action, progress: Progress) -> None:
        """Do one action; doing it again does no harm. Raises PlatformError."""


def make(plan: Plan, platform: Executor, record: Record, progress: Progress) -> None:
    """Create, update and replace, in the plan's order. Raises ApplyError, which says how to go on."""
    _execute(plan, [action for action in plan.changes if action.verb != "delete"], platform, record, progress)


def remove(plan: Plan, platform: Executor, record: Record, progress: Progress) -> None:
    """Delete what the plan no longer wants, in the plan's order. Raises ApplyError."""
    _execute(plan, [action for action in plan.changes if action.verb == "delete"], platform, record, progress)


def _execute(plan: Plan, actions: Sequence[Action], platform: Executor, record: Record, progress: Progress) -> None:
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
            done = f"{position} of {len(actions)} actions were done; recorded in {record.path}."
            on = f"The same command carries on; toolkit destroy {plan.endpoints[0]} removes what is there."
            hint = f"{error.hint}\n  {done} {on}".strip()
            raise ApplyError(f"{action} failed: {error.message}", hint=hint) from error
        record.write(plan, action, "done")
