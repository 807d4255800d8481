"""Folders of recipes on AWS's stand-in: the real command, each recipe a process of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from crowd import write_recipes
from standin import StandIn

from toolkit.api.deployment import plan
from toolkit.cli.main import run

NAMES = [f"chat-{number:02}" for number in range(10)]
NO_CAPACITY = "Unable to provision requested ML compute capacity due to InsufficientInstanceCapacity"


@pytest.fixture(autouse=True)
def _this_process_and_its_children_talk_to_the_standin(
    standin: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**standin.environment(), "TOOLKIT_POLL_SECONDS": "0.01"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TOOLKIT_HOME", str(tmp_path / "home"))


def make_fleet(root: Path, names: list[str]) -> Path:
    folder = root / "fleet"
    folder.mkdir()
    write_recipes(folder, names)
    (folder / "recipe.yaml").unlink()  # which all of them are copies of
    return folder


def answer(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, dict[str, Any], str]:
    """Exit code, JSON document and what was said of a command."""
    code = run([*map(str, arguments), "--json"])
    printed = capsys.readouterr()
    return code, json.loads(printed.out), printed.err


def states(document: dict[str, Any]) -> dict[str, str]:
    return {item["name"]: item["state"] for item in document["recipes"]}


def statuses(standin: StandIn) -> dict[str, str]:
    listed = standin.session().client("sagemaker").list_endpoints(MaxResults=100)["Endpoints"]
    return {item["EndpointName"]: item["EndpointStatus"] for item in listed}


@pytest.mark.timeout(600)
def test_a_fleet_stops_at_its_first_failure_and_with_keep_going_all_others_are_deployed(
    tmp_path: Path, standin: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet = make_fleet(tmp_path, NAMES)
    standin.script("chat-03", ["Creating", "Failed"], reason=NO_CAPACITY)
    code, first, said = answer(capsys, "deploy", fleet, "--yes", "--no-prove", "--parallel", "2")

    assert code == 3
    assert not first["ok"]
    became = states(first)
    assert became["chat-03"] == "failed"
    assert [name for name, state in became.items() if state == "failed"] == ["chat-03"]
    assert "InsufficientInstanceCapacity" in next(
        item["answer"]["message"] for item in first["recipes"] if item["name"] == "chat-03"
    )
    # Those that ran beside it were awaited, none was begun after it.
    assert {became[name] for name in NAMES[:3]} == {"done"}
    assert {became[name] for name in NAMES[5:]} == {"not started"}
    assert set(statuses(standin)) == {name for name, state in became.items() if state != "not started"}
    assert "chat-03: error: " in said
    assert "The same command carries on" in said

    standin.script("chat-06", ["Creating", "Failed"], reason=NO_CAPACITY)
    broken, whole = fleet / "chat-08.yaml", (fleet / "chat-08.yaml").read_text()
    broken.write_text(whole.replace("max_model_len", "max_model_length"))
    code, second, said = answer(capsys, "deploy", fleet, "--yes", "--no-prove", "--parallel", "2", "--keep-going")
    assert code == 3
    became = {Path(item["called"]).stem: item["state"] for item in second["recipes"]}
    assert {name for name, state in became.items() if state != "done"} == {"chat-06", "chat-08"}
    alive = dict.fromkeys((name for name in NAMES if name != "chat-08"), "InService")
    assert statuses(standin) == {**alive, "chat-06": "Failed"}
    assert "max_model_length" in said

    broken.write_text(whole)
    code, third, _ = answer(capsys, "plan", fleet)
    assert code == 0
    assert {item["called"][-12:-5] for item in third["recipes"] if changes(item)} == {"chat-06", "chat-08"}
    assert third["changes"] == sum(map(changes, third["recipes"]))
    assert third["price_per_hour"] == pytest.approx(sum(item["price_per_hour"] for item in third["recipes"]))


def changes(plan: dict[str, Any]) -> int:
    return sum(action["verb"] != "reuse" for action in plan["actions"])


def test_a_recipe_that_is_wrong_stops_all_before_anything_is_begun(
    tmp_path: Path, standin: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet = make_fleet(tmp_path, NAMES[:3])
    broken = fleet / "chat-02.yaml"
    broken.write_text(broken.read_text().replace("max_model_len", "max_model_length"))
    standin.calls.clear()
    assert run(["deploy", str(fleet), "--yes"]) == 1
    said = capsys.readouterr().err
    assert "max_model_length" in said
    assert "nothing was begun" in said
    assert not [call for call in standin.calls if call.operation.startswith(("Create", "Put"))]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_each_and_says_what_is_under_way(number: signal.Signals, tmp_path: Path, standin: StandIn) -> None:
    fleet = make_fleet(tmp_path, NAMES[:4])
    for name in NAMES[:4]:
        standin.script(name, ["Creating"] * 1000)
    command = subprocess.Popen(
        [sys.executable, "-m", "toolkit", "deploy", str(fleet), "--yes", "--parallel", "2", "--json"],
        env={**os.environ, "TOOLKIT_POLL_SECONDS": "0.1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        until(lambda: {"chat-00", "chat-01"} <= set(statuses(standin)))
        command.send_signal(number)
        printed, said = command.communicate(timeout=120)
    finally:
        command.kill()
        command.wait()

    assert command.returncode == 130
    became = states(json.loads(printed))
    assert {name for name, state in became.items() if state == "interrupted"} == {"chat-00", "chat-01"}
    assert set(became.values()) == {"interrupted", "not started"}
    assert "2 leave their leases" in said
    assert "under way where it was interrupted, and goes on there: chat-00, chat-01" in said
    leases = standin.session().client("s3").list_objects_v2(Bucket="toolkit-123456789012-us-west-2", Prefix="leases/")
    assert leases["KeyCount"] == 0


def until(there: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not there():
        assert time.monotonic() < deadline
        time.sleep(0.2)  # it is another process that is waited for


def test_drift_is_told_for_cron(standin: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    fleet = make_fleet(tmp_path, NAMES[:3])
    assert run(["deploy", str(fleet), "--yes", "--no-prove"]) == 0
    capsys.readouterr()
    code, document, _ = answer(capsys, "status", fleet, "--drift")
    assert (code, document["ok"]) == (0, True)

    standin.session().client("sagemaker").delete_endpoint(EndpointName="chat-00")
    standin.settle()
    changed = fleet / "chat-02.yaml"
    changed.write_text(changed.read_text().replace("max_model_len: 1024", "max_model_len: 512"))
    code, document, _ = answer(capsys, "status", fleet, "--drift")
    assert (code, document["ok"]) == (1, False)
    by_name = {item["name"]: item for item in document["recipes"]}
    assert "create Endpoint chat-00" in by_name["chat-00"]["drift"][0]
    assert by_name["chat-01"]["agrees"]
    assert any("max_model_len 1024 -> 512" in line for line in by_name["chat-02"]["drift"])

    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    code, document, said = answer(capsys, "status", fleet, "--drift")
    assert code == 3
    assert {item["agrees"] for item in document["recipes"]} == {None}
    assert "there are no credentials" in said


def test_a_fleet_is_rolled_back(standin: StandIn, tmp_path: Path, capsys: Any) -> None:
    fleet = make_fleet(tmp_path, NAMES[:2])
    assert run(["deploy", str(fleet), "--yes", "--no-prove"]) == 0
    first = configs(standin, NAMES[:2])
    for path in fleet.glob("*.yaml"):
        text = path.read_text().replace("max_model_len: 1024", "max_model_len: 512")
        path.write_text(text.replace("engine:\n", "engine:\n  args: {enforce-eager: true}\n"))
    assert run(["deploy", str(fleet), "--yes", "--no-prove"]) == 0
    assert configs(standin, NAMES[:2]) != first
    said = capsys.readouterr().err
    warned = [warning for path in fleet.glob("*.yaml") for warning in plan(path).warnings]
    assert warned
    assert [said.count(warning) for warning in warned] == [2] * len(warned), "each of two recipes, once"
    code, document, _ = answer(capsys, "rollback", fleet, "--yes")
    assert (code, document["ok"]) == (0, True)
    assert configs(standin, NAMES[:2]) == first


def configs(standin: StandIn, names: list[str]) -> list[str]:
    sagemaker = standin.session().client("sagemaker")
    return [sagemaker.describe_endpoint(EndpointName=name)["EndpointConfigName"] for name in names]
