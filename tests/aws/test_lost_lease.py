"""A process that was stopped for longer than its lease lasts, in the midst of an action: it changes nothing more."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from crowd import write_recipes
from moto.s3.models import s3_backends
from standin import ACCOUNT, StandIn
from standin_user import User, one

import toolkit
from toolkit.apply.progress import Silent
from toolkit.errors import ApplyError, PlatformError
from toolkit.platforms.lease import lease, this_process
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.objects import BucketLease
from toolkit.platforms.sagemaker.platform import SageMakerPlatform

BUCKET, LEASE = f"toolkit-{ACCOUNT}-us-west-2", "leases/hub"
LONGER_THAN_A_LEASE = 400.0


class Stops:
    """Time that passes while this process is stopped; another one takes the endpoint's lease meanwhile."""

    def __init__(self, standin: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
        real, self._standin, self._seconds = time.clock_gettime, standin, 0.0
        monkeypatch.setattr("time.clock_gettime", lambda which: real(which) + self._seconds)

    def now(self) -> None:
        self._seconds += LONGER_THAN_A_LEASE
        theirs = json.dumps(asdict(replace(this_process(), machine="another")))
        s3_backends[ACCOUNT]["aws"].put_object(BUCKET, LEASE, theirs.encode())

    def when_called(self, operation: str, after: str = "") -> None:
        """As the answer to the first such call comes, or to the first one after another call."""
        answer, due = self._standin._answer, [after, operation] if after else [operation]

        def stopping(call: Any, environ: Any) -> Any:
            found = answer(call, environ)
            if due and call.operation == due[0]:
                due.pop(0)
                if not due:
                    self.now()
            return found

        self._standin._answer = stopping  # type: ignore[method-assign]


@pytest.fixture
def stops(standin: StandIn, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stops]:
    for name, value in {**standin.environment(), "TOOLKIT_POLL_SECONDS": "0.01"}.items():
        monkeypatch.setenv(name, value)
    yield Stops(standin, monkeypatch)
    vars(standin).pop("_answer", None)


@pytest.fixture
def recipe(standin: StandIn, tmp_path: Path) -> Path:
    (recipe,) = write_recipes(tmp_path, ["hub"])
    toolkit.deploy(recipe, progress=Silent())
    recipe.write_text(recipe.read_text().replace("max_model_len: 1024", "max_model_len: 512"))
    standin.calls.clear()
    return recipe


@pytest.mark.usefixtures("stops")
def test_every_call_that_changes_something_is_fenced(user: User, stops: Stops) -> None:
    platform = SageMakerPlatform(Clients(user.session))
    user.create_model("a")
    with platform.lease("hub"):
        platform.clients.sagemaker.create_endpoint_config(EndpointConfigName="mine", ProductionVariants=[one("a")])
        stops.now()
        assert platform.clients.sagemaker.list_models()["Models"]
        with pytest.raises(PlatformError, match="hub is being changed by"):
            platform.clients.sagemaker.delete_endpoint_config(EndpointConfigName="mine")
    platform.clients.sagemaker.delete_endpoint_config(EndpointConfigName="mine")


def test_an_update_that_waits_for_the_endpoint_is_not_sent(standin: StandIn, stops: Stops, recipe: Path) -> None:
    """The last look before UpdateEndpoint belongs to the same action, before which the lease was still ours."""
    stops.when_called("DescribeEndpoint", after="CreateEndpointConfig")
    with pytest.raises(ApplyError, match="hub is being changed by"):
        toolkit.deploy(recipe, progress=Silent())
    assert [call.operation for call in standin.calls if call.operation.endswith("Endpoint")][-1] == "DescribeEndpoint"


def test_a_deployment_of_another_meanwhile_is_no_failure_of_the_endpoint(
    standin: StandIn, user: User, stops: Stops, recipe: Path
) -> None:
    """Who took the lease over has deployed since, so the endpoint runs another configuration."""
    standin.script("hub", ["Updating", "RollingBack", "InService"])
    stops.when_called("UpdateEndpoint")
    with pytest.raises(PlatformError, match="hub is being changed by"):
        toolkit.deploy(recipe, progress=Silent())


def test_a_date_that_a_proxy_has_doubled_is_no_time_of_s3(user: User, stops: Stops, recipe: Path) -> None:
    stops.now()
    session = user.session
    session.events.register("after-call.s3.GetObject", _doubled)
    store = BucketLease(Clients(session), BUCKET, "hub")
    with pytest.raises(PlatformError, match="hub is being changed by"), lease("hub", store):
        pass


def _doubled(parsed: Any, **_: object) -> None:
    headers = parsed["ResponseMetadata"]["HTTPHeaders"]
    headers["date"] = f"{headers['date']}, Thu, 26 Nov 2099 02:05:53 GMT"
