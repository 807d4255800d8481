"""Execute the actions of a plan. Each is recorded before and after it happens."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from toolkit.apply.diagnose import diagnose
from toolkit.apply.progress import Progress
from toolkit.catalog import registry
from toolkit.errors import ApplyError, PlatformError
from toolkit.planning.plan import Action, Plan
from toolkit.planning.record import Record


class Executor(Protocol):
    """The writing side of a platform."""

    @property
    def name(self) -> str:
        """The platform's name in recipes."""

    def execute(self, action: Action, progress: Progress) -> None:
        """Execute one action; it is idempotent. Raises PlatformError."""

    def lease(self, endpoint: str) -> AbstractContextManager[None]:
        """A lock on the endpoint. Raises PlatformError while somebody else is changing it."""


def make(plan: Plan, platform: Executor, record: Record, progress: Progress) -> None:
    """Create, update and replace, in the plan's order, up to the endpoint. Raises ApplyError."""
    _execute(plan, _made(plan, needs_service=False), platform, record, progress)


def complete(plan: Plan, platform: Executor, record: Record, progress: Progress) -> None:
    """Create the resources that need an endpoint in service, such as scaling policies. Raises ApplyError."""
    _execute(plan, _made(plan, needs_service=True), platform, record, progress)


def remove(plan: Plan, platform: Executor, record: Record, progress: Progress) -> None:
    """Execute the plan's delete actions, in its order. Raises ApplyError."""
    _execute(plan, [action for action in plan.changes if action.verb == "delete"], platform, record, progress)


def _made(plan: Plan, *, needs_service: bool) -> list[Action]:
    later = {rule.kind for rule in registry.platform_rules(plan.platform).kinds if rule.needs_service}
    return [action for action in plan.changes if action.verb != "delete" and (action.kind in later) == needs_service]


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
            done = f"{position} of {len(actions)} actions are done; they are recorded in {record.path}."
            on = f"Run the same command again to resume, or remove everything: toolkit destroy {plan.endpoints[0]}"
            cause = diagnose((), error.message, platform.name)
            helps = error.hint or (cause.hint if cause else "")
            hint = f"{helps}\n  {done} {on}".strip()
            raise ApplyError(f"{action} failed: {error.message}", hint=hint) from error
        record.write(plan, action, "done")
