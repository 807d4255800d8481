"""Open the local platform: a daemon that outlives the command that started it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from toolkit.errors import UsageError
from toolkit.home import containers_dir, home_folder
from toolkit.planning.resources import Account
from toolkit.platforms.local.aws import ACCOUNT, REGION
from toolkit.platforms.local.machine import require_packages, require_system, runs_here
from toolkit.recipe.recipe import Recipe

if TYPE_CHECKING:
    from toolkit.platforms.local.platform import LocalPlatform
    from toolkit.platforms.local.trainer import LocalTrainer
    from toolkit.platforms.rules import AwsSession


_PACKAGES = ("flask", "httptools", "moto", "starlette", "uvicorn", "werkzeug")


class LocalSession:
    """The daemon of this user's home. It has one scope."""

    account_name = "an account"
    unasked = ""
    may_be_absent = False
    is_this_machine = True

    def logged_in(self, login: AwsSession) -> LocalSession:
        """Raises UsageError: it is not AWS."""
        hint = "Leave out `session`, or pass platform='sagemaker'."
        raise UsageError("session: the local platform needs no AWS session", hint=hint)

    def scope(self, recipe: Recipe) -> None:
        return

    def scope_name(self, scope: str) -> str:
        return "this machine"

    def can_be_asked(self) -> bool:
        """Whether this system can run it; where it does not run, nothing exists."""
        return runs_here()

    def open(self, scope: str | None = None) -> LocalPlatform:
        require_system()
        require_packages(_PACKAGES, "the local platform", "local")
        from toolkit.platforms.local import daemon
        from toolkit.platforms.local.platform import local_platform

        return local_platform(daemon.start(home_folder("local"), containers_dir()))

    def running(self, scope: str | None = None) -> LocalPlatform | None:
        if not runs_here():
            return None
        from toolkit.apply.progress import default_progress
        from toolkit.platforms.local import daemon

        running = daemon.running(home_folder("local"))
        if running is None:
            if why := daemon.why_gone(home_folder("local")):
                default_progress().say(why)
            return None
        from toolkit.platforms.local.platform import local_platform

        return local_platform(running)

    glance = running

    def trainer(self, scope: str | None = None) -> LocalTrainer:
        """Training jobs of this user's home; they need no daemon. Raises UsageError."""
        require_system()
        from toolkit.platforms.local.trainer import LocalTrainer

        return LocalTrainer(home_folder("training"))

    def scope_of(self, endpoint: str) -> None:
        return

    def every_scope(self) -> Sequence[str | None]:
        return [None]

    def unread_account(self, scope: str | None) -> Account:
        return Account(ACCOUNT, REGION)

    def cleaner(self, scope: str | None) -> None:
        """Nothing here: all of it lies below the toolkit's home."""


SESSION = LocalSession()
