"""Plan and apply together, on a platform in memory: whatever happens on the way, the same command gets there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from aws_kinds import desired
from fakes import ACCOUNT, FakeClock, Key, MemoryPlatform, Told, by_kind
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pairs import edit_config, write_pair

from toolkit.apply.executor import make, remove
from toolkit.apply.waiter import wait_in_service
from toolkit.errors import EndpointNotFound, UsageError
from toolkit.loading import load
from toolkit.planning.kinds import configs
from toolkit.planning.plan import Action, Plan
from toolkit.planning.planner import make_plan
from toolkit.planning.record import Record, Step
from toolkit.planning.resources import Resource
from toolkit.platforms.local.rules import RULES
from toolkit.platforms.sagemaker.rules.access import also_reading
from toolkit.platforms.sagemaker.rules.model_data import addresses
from toolkit.platforms.sagemaker.rules.updates import rollback_plan
from toolkit.recipe.recipe import Recipe

ENDPOINTS = ("tiny", "tiny-baseline")


class Arms(tuple[Resource, ...]):
    """What an endpoint and its baseline need; as text only short enough for a failing example."""

    def __repr__(self) -> str:
        return f"<{len(self)} resources>"


class Unwritten(Record):
    """A record that writes nothing: forcing every event to disk takes longer than all the rest."""

    def __init__(self) -> None:
        super().__init__(Path("unwritten"), print)

    def write(self, plan: Plan, action: Action, step: Step, detail: str = "") -> None:
        pass


class Deployer:
    """Plan, make, wait, remove: what `toolkit deploy` and `toolkit destroy` do."""

    def __init__(self) -> None:
        self.platform = MemoryPlatform()
        self.record = Unwritten()

    def plan(self, resources: Sequence[Resource], endpoints: Sequence[str] = ENDPOINTS) -> Plan:
        return make_plan("tiny", RULES, endpoints, resources, self.platform.observe(resources, endpoints))

    def deploy(self, resources: Sequence[Resource], endpoints: Sequence[str] = ENDPOINTS) -> None:
        for endpoint in endpoints:
            self._settle(endpoint)
        clock, plan = FakeClock(), self.plan(resources, endpoints)
        make(plan, RULES.kinds, self.platform, self.record, Told())
        wait_in_service(self.platform, configs(plan, RULES.kinds), Told(), 100, clock, clock.sleep)
        remove(plan, self.platform, self.record, Told())

    def rollback(self, endpoint: str = "tiny") -> None:
        observed = self.platform.observe((), [endpoint])
        plan = rollback_plan("tiny", "local", endpoint, observed)
        make(plan, RULES.kinds, self.platform, self.record, Told())
        self._settle(endpoint)

    def destroy(self, endpoints: Sequence[str] = ENDPOINTS) -> None:
        remove(self.plan((), endpoints), self.platform, self.record, Told())

    def _settle(self, endpoint: str) -> None:
        """Let what is under way come to its end, which asking does."""
        with suppress(EndpointNotFound):
            self.platform.status(endpoint)

    def killed(self, moment: int, command: Callable[[], None]) -> bool:
        """Whether Ctrl-C at that moment came before the command was done."""
        self.platform.interrupt_in(moment)
        try:
            command()
        except KeyboardInterrupt:
            return True
        finally:
            self.platform.interrupt_in(None)
        return False


@pytest.fixture(scope="module")
def variants() -> Iterator[list[Arms]]:
    """Four recipes of one endpoint and its baseline: as it is, with another K, another drafter, another target."""
    with TemporaryDirectory() as folder:
        recipe = load(write_pair(Path(folder) / "a"))
        drafter = load(write_pair(Path(folder) / "b"))
        edit_config(Path(folder) / "b" / "drafter", ptd_token_id=4)
        target = load(write_pair(Path(folder) / "c"))
        edit_config(Path(folder) / "c" / "target", max_position_embeddings=2048)
        assert recipe.speculation
        fewer = replace(recipe, speculation=recipe.speculation.edit(num_speculative_tokens=3))
        yield [arms(each) for each in (recipe, fewer, drafter, target)]


def arms(recipe: Recipe) -> Arms:
    return Arms(desired([recipe, recipe.baseline()], ACCOUNT))


def content(resource: Mapping[str, Any]) -> dict[str, Any]:
    """What it is, without the story of how it came about."""
    return {key: value for key, value in resource.items() if key not in ("Previous", "Tags")}


def reading_what_is_kept(item: Resource, there: Mapping[Key, Mapping[str, Any]]) -> Resource:
    """A role's policy as it is while the models that a rollback brings back are there; anything else as it is."""
    if item.kind != "RolePolicy":
        return item
    models = [request for (kind, _), request in there.items() if kind == "Model"]
    served = [each for each in models if each["ExecutionRoleArn"].rpartition("/")[2] == item.request["RoleName"]]
    kept = [address for model in served for address in addresses(model["PrimaryContainer"])]
    return also_reading(item, "arn:aws", kept)


def config_of(name: str) -> str:
    """The endpoint of an EndpointConfig, by its name."""
    return name.rpartition("-")[0]


def test_after_an_update_what_ran_before_stays_and_what_ran_before_that_goes(variants: list[Arms]) -> None:
    deployer = Deployer()
    for resources in variants[:3]:
        deployer.deploy(resources)
    there = {(kind, name) for kind, name in deployer.platform.resources}
    kept = {(item.kind, item.name) for resources in variants[1:3] for item in resources}
    assert there == kept
    assert deployer.plan(variants[2]).changes == []


def test_a_rollback_brings_back_what_ran_before_and_cannot_be_done_twice(variants: list[Arms]) -> None:
    deployer = Deployer()
    deployer.deploy(variants[0])
    with pytest.raises(UsageError, match="never updated"):
        deployer.rollback()
    before = deployer.platform.status("tiny").config
    deployer.deploy(variants[1])
    now = deployer.platform.status("tiny").config
    deployer.rollback()
    assert deployer.platform.status("tiny").config == before
    deployer.rollback()  # of the rollback
    assert deployer.platform.status("tiny").config == now


def at_once(resources: Arms) -> MemoryPlatform:
    """The platform after one deployment that nothing disturbed."""
    deployer = Deployer()
    deployer.deploy(resources)
    return deployer.platform


def test_applying_a_plan_makes_what_is_desired(variants: list[Arms]) -> None:
    platform = at_once(variants[0])
    assert by_kind(platform.resources) == by_kind({(item.kind, item.name): item for item in variants[0]})


def test_doing_it_again_does_nothing(variants: list[Arms]) -> None:
    deployer = Deployer()
    deployer.deploy(variants[0])
    assert deployer.plan(variants[0]).changes == []


def test_destroying_leaves_nothing(variants: list[Arms]) -> None:
    deployer = Deployer()
    deployer.deploy(variants[0])
    deployer.destroy()
    assert deployer.platform.resources == {}


def test_destroying_the_baseline_alone_leaves_the_endpoint_whole(variants: list[Arms]) -> None:
    deployer = Deployer()
    deployer.deploy(variants[0])
    deployer.destroy(("tiny-baseline",))
    kept = [item for item in variants[0] if "tiny-baseline" not in item.name]
    assert by_kind(deployer.platform.resources) == by_kind({(item.kind, item.name): item for item in kept})
    assert deployer.plan(kept, ("tiny",)).changes == []


def test_a_deployment_killed_at_any_moment_is_carried_on(variants: list[Arms]) -> None:
    wanted = at_once(variants[0]).resources
    moment, killed = 0, True
    while killed:
        deployer = Deployer()
        killed = deployer.killed(moment, partial(deployer.deploy, variants[0]))
        deployer.deploy(variants[0])
        assert deployer.platform.resources == wanted
        moment += 1
    assert moment > 40


def test_a_removal_killed_at_any_moment_is_carried_on(variants: list[Arms]) -> None:
    moment, killed = 0, True
    while killed:
        deployer = Deployer()
        deployer.deploy(variants[0])
        killed = deployer.killed(moment, deployer.destroy)
        deployer.destroy()
        assert deployer.platform.resources == {}
        moment += 1
    assert moment > 30


def test_a_deployment_killed_at_any_moment_can_be_removed(variants: list[Arms]) -> None:
    moment, killed = 0, True
    while killed:
        deployer = Deployer()
        killed = deployer.killed(moment, partial(deployer.deploy, variants[0]))
        deployer.destroy()
        assert deployer.platform.resources == {}
        moment += 1


@settings(deadline=None, max_examples=150)
@given(
    history=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 60), st.booleans()), max_size=4),
    last=st.integers(0, 3),
)
@example([(3, 6, False), (0, 55, False), (1, 2, False), (3, 19, False)], 2)  # a role reads what a rollback needs
def test_whatever_was_done_and_killed_before_the_last_deployment_wins(
    variants: list[Arms], history: list[tuple[int, int, bool]], last: int
) -> None:
    deployer = Deployer()
    for variant, moment, destroys in history:
        command = deployer.destroy if destroys else partial(deployer.deploy, variants[variant])
        deployer.killed(moment, command)
    deployer.deploy(variants[last])
    there = deployer.platform.resources
    expected = Arms(reading_what_is_kept(item, there) for item in variants[last])
    for (kind, name), wanted in at_once(expected).resources.items():
        assert content(there[kind, name]) == content(wanted)
    for endpoint in ENDPOINTS:  # besides what runs there is at most what ran before
        assert sum(kind == "EndpointConfig" and config_of(name) == endpoint for kind, name in there) <= 2
    assert deployer.plan(variants[last]).changes == []
    deployer.destroy()
    assert deployer.platform.resources == {}


def test_another_endpoint_with_the_same_weights_is_never_touched(variants: list[Arms], tmp_path: Path) -> None:
    recipe = load(write_pair(tmp_path))
    other = desired([replace(recipe, name="other")], ACCOUNT)
    alone = Deployer()
    alone.deploy(other, ("other",))

    deployer = Deployer()
    deployer.deploy(other, ("other",))
    for variant in variants:
        deployer.deploy(variant)
    deployer.destroy()
    assert deployer.platform.resources == alone.platform.resources
