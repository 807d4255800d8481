"""What runs changes between a plan and its lease: no more is done than was approved, and what is left of that is."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from crowd import write_recipes
from fakes import Told
from standin import StandIn

import toolkit
from toolkit.apply.progress import Silent
from toolkit.errors import StalePlanError

LEASE = "/leases/hub"


@pytest.fixture
def meanwhile(standin: StandIn, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Callable[[], object]], None]]:
    """Do something as the next lease is asked for."""
    for name, value in {**standin.environment(), "TOOLKIT_POLL_SECONDS": "0.01"}.items():
        monkeypatch.setenv(name, value)
    arriving, due = standin._server.app, list[Callable[[], object]]()

    def arrives(environ: Any, start_response: Any) -> Any:
        if due and environ["REQUEST_METHOD"] == "PUT" and environ["PATH_INFO"].endswith(LEASE):
            due.pop()()
        return arriving(environ, start_response)

    standin._server.app = arrives
    yield due.append
    standin._server.app = arriving


@pytest.fixture
def recipe(meanwhile: object, tmp_path: Path) -> Path:
    """Of an endpoint that serves."""
    (recipe,) = write_recipes(tmp_path, ["hub"])
    toolkit.deploy(recipe, progress=Silent())
    return recipe


def of_length(recipe: Path, length: int) -> Path:
    """The recipe with another limit, beside it."""
    folder = recipe.parent / str(length)
    folder.mkdir(exist_ok=True)
    (folder / "recipe.lock.json").write_text(recipe.with_suffix(".lock.json").read_text())
    changed = folder / "recipe.yaml"
    changed.write_text(recipe.read_text().replace("max_model_len: 1024", f"max_model_len: {length}"))
    return changed


def deploy(recipe: Path) -> None:
    toolkit.deploy(recipe, progress=Silent())


def another(*command: object) -> Callable[[], object]:
    """Somebody else's command, which runs to its end."""
    words = [sys.executable, "-m", "toolkit", *map(str, command), "--yes"]
    return lambda: subprocess.run(words, check=True, capture_output=True)


def runs(standin: StandIn) -> str:
    name: str = standin.session().client("sagemaker").describe_endpoint(EndpointName="hub")["EndpointConfigName"]
    return name


def test_what_another_has_deployed_since_the_plan_is_not_overwritten(
    standin: StandIn, meanwhile: Callable[[Callable[[], object]], None], recipe: Path
) -> None:
    mine, theirs = of_length(recipe, 512), of_length(recipe, 256)
    meanwhile(another("deploy", theirs, "--no-prove"))
    with pytest.raises(StalePlanError, match="hub was changed by somebody else after this was planned") as error:
        deploy(mine)
    assert "update Endpoint hub: " in error.value.message
    assert toolkit.plan(theirs).changes == []
    deploy(mine)
    assert toolkit.plan(mine).changes == []


def test_a_configuration_that_another_has_gone_back_to_is_not_deleted(
    standin: StandIn, meanwhile: Callable[[Callable[[], object]], None], recipe: Path
) -> None:
    """The plan removes what neither runs nor would be rolled back to, and that is what runs now."""
    first = runs(standin)
    deploy(of_length(recipe, 512))
    meanwhile(another("rollback", "hub"))
    with pytest.raises(StalePlanError):
        deploy(of_length(recipe, 256))
    assert runs(standin) == first
    assert standin.session().client("sagemaker").describe_endpoint_config(EndpointConfigName=first)


def test_what_another_has_done_of_it_is_not_done_again(
    standin: StandIn, meanwhile: Callable[[Callable[[], object]], None], recipe: Path
) -> None:
    mine = of_length(recipe, 512)
    meanwhile(another("deploy", mine, "--no-prove"))
    told = Told()
    toolkit.deploy(mine, progress=told)
    assert [stage for stage in told.stages if stage.startswith(("create ", "update ", "delete "))] == []
    assert [str(call) for call in standin.calls].count("sagemaker:UpdateEndpoint") == 1
    assert toolkit.plan(mine).changes == []


def test_a_plan_of_before_is_refused_once_the_lease_is_held(
    meanwhile: Callable[[Callable[[], object]], None], recipe: Path
) -> None:
    mine, theirs = of_length(recipe, 512), of_length(recipe, 256)
    planned = toolkit.plan(mine)
    meanwhile(another("deploy", theirs, "--no-prove"))
    with pytest.raises(StalePlanError, match="what runs now is not what this plan for hub was made from"):
        planned.apply(progress=Silent())
    assert toolkit.plan(theirs).changes == []


def test_a_rollback_goes_back_from_what_it_was_asked_of(
    meanwhile: Callable[[Callable[[], object]], None], recipe: Path
) -> None:
    theirs = of_length(recipe, 256)
    deploy(of_length(recipe, 512))
    meanwhile(another("deploy", theirs, "--no-prove"))
    with pytest.raises(StalePlanError):
        toolkit.rollback("hub", progress=Silent())
    assert toolkit.plan(theirs).changes == []


def test_what_goes_while_it_is_read_is_not_there(standin: StandIn, meanwhile: object, recipe: Path) -> None:
    """Another process removes what a deployment of its own has superseded."""
    deploy(of_length(recipe, 512))
    arriving, sagemaker = standin._server.app, standin.session().client("sagemaker")
    gone = [model["ModelName"] for model in sagemaker.list_models(SortBy="CreationTime")["Models"]][:1]

    def arrives(environ: Any, start_response: Any) -> Any:
        if gone and environ.get("HTTP_X_AMZ_TARGET") == "SageMaker.ListTags":
            sagemaker.delete_model(ModelName=gone.pop())
        return arriving(environ, start_response)

    standin._server.app = arrives
    assert toolkit.plan(recipe)
    assert not gone
