"""The stand-in's model host: no containers, but a script that says how each endpoint and component fares.

A script is a list of statuses. The first is there at once; every Describe of the resource moves it on to the next
after it has answered, so that a script's n-th status is what the n-th Describe sees.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, Literal, TypeVar

from moto.logs.models import logs_backends
from standin_account import AccountRules
from standin_components import ComponentSpec, is_for_components
from standin_hosting import Hosting

from toolkit.platforms.local.aws import ACCOUNT, Region, log_group, now
from toolkit.platforms.local.endpoints import Lifecycle, Release
from toolkit.platforms.local.host import (
    EndpointSpec,
    Placement,
    Request,
    Target,
    Variant,
    Watcher,
)

# SageMaker's words, as users report them.
CAPACITY = (
    "Unable to provision requested ML compute capacity due to InsufficientInstanceCapacity error. "
    "Please retry using a different ML instance type or after some time."
)
PING = (
    "The primary container for production variant AllTraffic did not pass the ping health check. "
    "Please check CloudWatch logs for this endpoint."
)
HEALTHY_LOG = (
    "INFO 11-20 10:00:00 [api_server.py:1] vLLM API server version",
    "INFO:     Application startup complete.",
)

Kind = Literal["endpoint", "inference-component"]
S = TypeVar("S")


@dataclass(frozen=True)
class Script:
    """Statuses in order, the reason of a failure, and what the containers write before their second status."""

    statuses: tuple[str, ...]
    reason: str = ""
    logs: tuple[str, ...] = HEALTHY_LOG


@dataclass
class Book:
    """What tests have said about things to come, in one region. `without_capacity` are instance types."""

    scripts: dict[tuple[Kind, str], Script] = field(default_factory=dict)
    without_capacity: set[str] = field(default_factory=set)


class Course:
    """A script being played: one step after each Describe."""

    def __init__(self, statuses: Sequence[str], enter: Callable[[str], None]) -> None:
        self.ahead = list(statuses)
        self._enter = enter
        self.step()

    def step(self) -> None:
        """Take the next status, if there is one."""
        if self.ahead:
            self._enter(self.ahead.pop(0))


class ScriptedHost:
    """A `ComponentHost` for tests."""

    refused: Mapping[str, tuple[str, ...]] = {}

    def __init__(self, region: Region, account: AccountRules) -> None:
        self.region = region
        self.book = Book()
        self._account = account
        self.hosting: Hosting
        self.ending: set[str] = set()
        """ARNs of what is being deleted."""
        self._fleets: list[ScriptedEndpoint] = []
        self._courses: dict[tuple[Kind, str], Course] = {}
        self._instances = itertools.count(1)

    def examine(self, operation: str, request: Request) -> None:
        """See host.ModelHost."""
        self._account.examine(self.region, operation, request)

    def endpoint(self, spec: EndpointSpec) -> ScriptedEndpoint:
        """See host.ModelHost. While one fleet replaces another, both count against the quota."""
        fleet = ScriptedEndpoint(self, spec)
        for instance_type, wanted in fleet.instances().items():
            used = sum(other.instances()[instance_type] for other in self._fleets)
            self._account.must_have_quota(instance_type, used, wanted)
        return fleet

    def component(self, spec: ComponentSpec) -> ScriptedComponent:
        """See standin_components.ComponentHost."""
        return ScriptedComponent(self, spec)

    def described(self, kind: Kind, name: str) -> None:
        """A Describe has been answered: move on."""
        if course := self._courses.get((kind, name)):
            course.step()

    def settle(self) -> None:
        """Play everything that is under way to its end."""
        for course in list(self._courses.values()):
            while course.ahead:
                course.step()

    def play(self, kind: Kind, name: str, statuses: Sequence[str], enter: Callable[[str], None]) -> None:
        """Begin a script; what was played for that name before is over."""
        self._courses[kind, name] = Course(statuses, enter)

    def write_log(self, group: str, variant: str, lines: Sequence[str]) -> None:
        """The log stream of a new container in CloudWatch Logs."""
        backend, stream = logs_backends[ACCOUNT][self.region.name], f"{variant}/i-{next(self._instances):017x}"
        if group not in backend.groups:
            backend.create_log_group(group, {})
        backend.create_log_stream(group, stream)
        moment = int(now() * 1000)
        backend.put_log_events(group, stream, [{"timestamp": moment, "message": line} for line in lines])

    def has(self, fleet: ScriptedEndpoint, there: bool) -> None:
        """A fleet of instances is there, or no longer."""
        if there:
            self._fleets.append(fleet)
        elif fleet in self._fleets:
            self._fleets.remove(fleet)

    def script(self, kind: Kind, name: str, ready: str) -> Script:
        """What tests have said of that resource's next start or change; by default it takes one Describe."""
        return self.book.scripts.pop((kind, name), Script((ready, "InService")))


class _Scripted(Generic[S]):
    """What endpoints and components have in common."""

    def __init__(self, host: ScriptedHost, kind: Kind, name: str) -> None:
        self._host, self._kind, self._name = host, kind, name

    def start(self, watcher: Watcher) -> None:
        """See host.Deployment."""
        status = _life(watcher).status
        script = self._host.script(self._kind, self._name, status)
        why, writes = self._asked_of_roles()
        if why:
            back = ("RollingBack", "InService") if _life(watcher).live else ("Failed",)
            script = Script((status, *back), why, logs=())
        self._play(script if writes else replace(script, logs=()), watcher)

    def rescale(self, spec: S, watcher: Watcher) -> None:
        """See host.Deployment."""
        self._play(self._host.script(self._kind, self._name, "Updating"), watcher)

    def retire(self, ended: Callable[[], None]) -> None:
        """See host.Deployment. Nobody waits here."""
        self._gone()
        ended()

    def stop(self, ended: Callable[[], None]) -> None:
        """See host.Deployment. Deleting takes one Describe."""
        arn = self._host.region.arn(self._kind, self._name)
        self._host.ending.add(arn)

        def enter(status: str) -> None:
            if status == "gone":
                self._gone()
                ended()
                self._host.ending.discard(arn)

        self._host.play(self._kind, self._name, ("Deleting", "gone"), enter)

    def _play(self, script: Script, watcher: Watcher) -> None:
        entered: list[str] = []

        def enter(status: str) -> None:
            if len(entered) == 1:
                self._write_logs(script.logs)
            entered.append(status)
            self._enter(status, script.reason, watcher, was_rolling_back="RollingBack" in entered)

        self._host.play(self._kind, self._name, script.statuses, enter)

    def _enter(self, status: str, reason: str, watcher: Watcher, was_rolling_back: bool) -> None:
        life = _life(watcher)
        if status in ("Creating", "Updating"):
            return
        if status == "RollingBack":
            watcher.failing(reason)
        elif status == "InService" and not was_rolling_back:
            watcher.healthy()
        else:
            watcher.failed(reason)
            if life.live is None or life.live.deployment is not self:
                self._gone()
            if life.status != status:  # statuses that the life cycle does not come to by itself
                life.turn(status, reason)

    def _gone(self) -> None:
        """Its instances are."""

    def _asked_of_roles(self) -> tuple[str, bool]:
        """See Hosting.endpoint."""
        raise NotImplementedError

    def _write_logs(self, lines: Sequence[str]) -> None:
        raise NotImplementedError


class ScriptedEndpoint(_Scripted[EndpointSpec]):
    """The containers of an endpoint: none."""

    def __init__(self, host: ScriptedHost, spec: EndpointSpec) -> None:
        super().__init__(host, "endpoint", spec.endpoint)
        self._spec = spec
        lacking = host.book.without_capacity
        self._placements = {
            variant.name: next((p for p in variant.placements if p.instance_type not in lacking), None)
            for variant in spec.variants
        }

    def start(self, watcher: Watcher) -> None:
        """See host.Deployment. Without capacity no container ever starts."""
        self._host.has(self, True)
        if all(self._placements.values()):
            super().start(watcher)
        else:
            back = ("RollingBack", "InService") if _life(watcher).live else ("Failed",)
            self._play(Script((_life(watcher).status, *back), CAPACITY, logs=()), watcher)

    def rescale(self, spec: EndpointSpec, watcher: Watcher) -> None:
        """See host.Deployment."""
        self._spec = spec
        super().rescale(spec, watcher)

    def instances(self) -> Counter[str]:
        """Its instances by type."""
        counts: Counter[str] = Counter()
        for variant in self._spec.variants:
            counts[self.placement(variant).instance_type] += variant.count
        return counts

    def targets(self) -> list[Target]:
        """See host.Deployment. Nobody listens at that port."""
        return [Target(variant.name, variant.weight, 1, "", variant.is_shadow) for variant in self._spec.variants]

    def placement(self, variant: Variant) -> Placement:
        """See host.Deployment."""
        return self._placements[variant.name] or variant.placements[0]

    def _gone(self) -> None:
        self._host.has(self, False)

    def _asked_of_roles(self) -> tuple[str, bool]:
        return self._host.hosting.endpoint(self._spec)

    def _write_logs(self, lines: Sequence[str]) -> None:
        if lines and not is_for_components(self._spec):
            for variant in self._spec.variants:
                self._host.write_log(log_group(self._name), variant.name, lines)


class ScriptedComponent(_Scripted[ComponentSpec]):
    """The containers of an inference component: none."""

    def __init__(self, host: ScriptedHost, spec: ComponentSpec) -> None:
        super().__init__(host, "inference-component", spec.name)
        self._variant, self._spec = spec.variant, spec

    def _asked_of_roles(self) -> tuple[str, bool]:
        return self._host.hosting.component(self._spec)

    def _write_logs(self, lines: Sequence[str]) -> None:
        if lines:  # the group's name as users report it; AWS documents none
            self._host.write_log(f"/aws/sagemaker/InferenceComponents/{self._name}", self._variant, lines)


def _life(watcher: Watcher) -> Lifecycle:
    assert isinstance(watcher, Release)
    return watcher.lifecycle
