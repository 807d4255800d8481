"""Applying a plan: each action is recorded before and after, and a failure says how to go on."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from fakes import Told

from toolkit.apply.executor import Leased, complete, make, remove
from toolkit.apply.progress import Progress
from toolkit.errors import ApplyError, PlatformError
from toolkit.planning.plan import Action, Plan, Verb
from toolkit.planning.record import Record
from toolkit.registry import rules_of


class Scripted:
    """A platform that does what it was told to when it comes to one action."""

    name = "sagemaker"

    def __init__(self, at: str = "", error: BaseException | None = None) -> None:
        self.done: list[str] = []
        self._at = at
        self._error = error

    def execute(self, action: Action, progress: Progress) -> None:
        if action.name == self._at and self._error:
            raise self._error
        self.done.append(str(action))


def action(name: str, verb: Verb) -> Action:
    return Action("Model", name, verb, "because", {})


KINDS = rules_of("local").kinds
PLAN = Plan(
    "recipe.yaml",
    "local",
    ("e",),
    (
        action("a", "create"),
        action("b", "reuse"),
        action("c", "update"),
        action("d", "replace"),
        action("old", "delete"),
    ),
    0.0,
    "fingerprint",
)


@pytest.fixture
def record(tmp_path: Path) -> Record:
    return Record(tmp_path / "e.jsonl", print)


def steps(record: Record) -> list[tuple[str, str, str]]:
    return [(event.name, event.step, event.detail) for event in record.events()]


def test_making_does_what_changes_in_order_and_removes_nothing(record: Record) -> None:
    platform, told = Scripted(), Told()
    make(PLAN, KINDS, platform, record, told)
    assert platform.done == ["create Model a", "update Model c", "replace Model d"]
    assert told.stages == platform.done


def test_removing_does_nothing_else(record: Record) -> None:
    platform = Scripted()
    remove(PLAN, platform, record, Told())
    assert platform.done == ["delete Model old"]


def test_what_an_update_needs_removed_goes_before_it_and_what_needs_it_in_service_comes_after(record: Record) -> None:
    steps: tuple[tuple[str, Verb], ...] = (
        ("ScalingPolicy", "delete"),
        ("ScalableTarget", "delete"),
        ("Endpoint", "update"),
        ("ScalableTarget", "create"),
        ("ScalingPolicy", "create"),
        ("Model", "delete"),
    )
    plan = replace(
        PLAN, platform="sagemaker", actions=tuple(Action(kind, "e", verb, "because", {}) for kind, verb in steps)
    )
    done = {}
    kinds = rules_of("sagemaker").kinds
    for stage in (partial(make, plan, kinds), partial(complete, plan, kinds), partial(remove, plan)):
        platform = Scripted()
        stage(platform, record, Told())
        done[stage.func.__name__] = platform.done
    assert done == {
        "make": ["delete ScalingPolicy e", "delete ScalableTarget e", "update Endpoint e"],
        "complete": ["create ScalableTarget e", "create ScalingPolicy e"],
        "remove": ["delete Model e"],
    }


def test_each_action_is_recorded_before_and_after(record: Record) -> None:
    make(PLAN, KINDS, Scripted(), record, Told())
    assert steps(record) == [(name, step, "") for name in "acd" for step in ("started", "done")]


def test_a_failure_says_what_was_done_and_how_to_go_on(record: Record) -> None:
    error = PlatformError("no quota for ml.x", hint="Ask for more.")
    with pytest.raises(ApplyError) as caught:
        make(PLAN, KINDS, Scripted("c", error), record, Told())
    assert str(caught.value) == (
        "update Model c failed: no quota for ml.x\n"
        "  Ask for more.\n"
        f"  1 of 3 actions are done; they are recorded in {record.path}. Run the same command again to "
        "resume, or remove everything: toolkit destroy e"
    )
    assert caught.value.__cause__ is error
    assert steps(record)[-2:] == [("c", "started", ""), ("c", "failed", "no quota for ml.x")]


def test_a_failure_without_a_hint_of_its_own_still_says_how_to_go_on(record: Record) -> None:
    with pytest.raises(ApplyError) as caught:
        make(PLAN, KINDS, Scripted("a", PlatformError("no")), record, Told())
    assert caught.value.hint.startswith("0 of 3 actions are done")


def test_ctrl_c_is_recorded_and_passed_on(record: Record) -> None:
    with pytest.raises(KeyboardInterrupt):
        make(PLAN, KINDS, Scripted("c", KeyboardInterrupt()), record, Told())
    assert steps(record)[-1] == ("c", "interrupted", "")


def test_a_fault_of_ours_is_not_dressed_up_as_one_of_the_platform(record: Record) -> None:
    with pytest.raises(ZeroDivisionError):
        make(PLAN, KINDS, Scripted("c", ZeroDivisionError()), record, Told())
    assert steps(record)[-1] == ("c", "started", "")


def test_what_aws_refuses_without_an_advice_of_its_own_gets_ours(record: Record) -> None:
    refused = PlatformError("create Model a: Requested image r.amazonaws.com/vllm:9 not found. (ValidationException)")
    with pytest.raises(ApplyError) as caught:
        make(PLAN, KINDS, Scripted("a", refused), record, Told())
    assert "engine.version" in caught.value.hint


def test_who_lost_its_lease_changes_nothing_more(record: Record) -> None:
    """As a process that was stopped while another one took over."""
    platform, is_held = Scripted(), iter([True, False])

    def confirm() -> None:
        if not next(is_held):
            raise PlatformError("e is being changed by ann")

    with pytest.raises(ApplyError, match="update Model c failed: e is being changed by ann"):
        make(PLAN, KINDS, Leased(platform, confirm), record, Told())
    assert platform.done == ["create Model a"]
