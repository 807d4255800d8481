"""An AWS account in memory in the place of `sagemaker`, for what must not happen in it."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from fakes import ACCOUNT, MemoryPlatform
from pairs import RECIPE

from toolkit import registry
from toolkit.planning.plan import Action
from toolkit.planning.resources import Account
from toolkit.recipe.recipe import Recipe

ON_AWS = (
    RECIPE.replace("0.32.0", "0.30.0")
    .replace('\n  env: {HF_HUB_OFFLINE: "1"}', "")
    .replace(
        "platform: {name: local}",
        "platform: {name: sagemaker, instance_types: [ml.g6.xlarge], role: create}\n"
        "observability: {alarms: false, dashboard: false}",
    )
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class AwsInMemory(MemoryPlatform):
    """An account in which nothing exists. `done` are the actions that were applied."""

    poll_seconds = 0.0

    def __init__(self) -> None:
        super().__init__()
        self.done: list[Action] = []

    def execute(self, action: Action, progress: Any) -> None:
        self.done.append(action)
        super().execute(action, progress)

    def address(self, name: str) -> str:
        self.status(name)
        return name

    def exists_settled(self, endpoint: str, progress: Any) -> bool:
        return ("Endpoint", endpoint) in self.resources


class AwsSession:
    """Opens the account that is set, whatever the recipe says."""

    account_name = "an AWS account"
    unasked = ""
    may_be_absent = False

    def __init__(self) -> None:
        self.account = ACCOUNT
        self.platform = AwsInMemory()

    def scope(self, recipe: Recipe) -> str | None:
        return recipe.region

    def scope_of(self, endpoint: str) -> None:
        return None

    def can_be_asked(self) -> bool:
        return True

    def open(self, scope: str | None) -> AwsInMemory:
        return self.platform

    glance = running = open

    def unread_account(self, scope: str | None) -> Account:
        return self.account


SESSION = AwsSession()


@contextmanager
def aws_in_memory() -> Iterator[AwsInMemory]:
    """An empty account, which every command takes for AWS."""
    before = registry._platforms()["sagemaker"]
    registry.register_platform("sagemaker", replace(before, session=f"{__name__}:SESSION"))
    SESSION.platform = AwsInMemory()
    try:
        yield SESSION.platform
    finally:
        registry.register_platform("sagemaker", before)
