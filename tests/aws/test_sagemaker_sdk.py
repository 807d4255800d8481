"""The SageMaker Python SDK, version 3, beside the toolkit: its Session opens AWS, and its Endpoint is ours."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from pairs import HUB_RECIPE, write_hub_pair
from ruamel.yaml import YAML
from standin import StandIn
from standin_user import EVERYTHING, TRUST

import toolkit
from toolkit.apply.progress import Silent
from toolkit.errors import EndpointNotFound, MissingPackage, UsageError
from toolkit.platforms.kubernetes.platform import KubernetesPlatform

# The SDK's own code has escapes that Python warns of when it compiles them.
pytestmark = pytest.mark.filterwarnings("ignore:invalid escape sequence:DeprecationWarning")

SERVED = HUB_RECIPE.replace("platform: {", "platform: {weights: hub, ")
ROLE = "arn:aws:iam::123456789012:role/studio"


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recipe that names no role; the environment has no credentials."""
    monkeypatch.setenv("TOOLKIT_POLL_SECONDS", "0.01")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return write_hub_pair(tmp_path, SERVED)


@pytest.fixture
def session(standin: StandIn) -> Any:
    """The SDK's session of somebody who works in Studio: under an execution role."""
    from sagemaker.core.helper.session_helper import Session

    return Session(boto_session=InStudio(standin))


class InStudio(boto3.Session):
    """A session under the role `studio`, all of whose clients talk to the stand-in."""

    def __init__(self, standin: StandIn) -> None:
        owner: Any = standin.session()
        iam = owner.client("iam")
        iam.create_role(RoleName="studio", AssumeRolePolicyDocument=json.dumps(TRUST))
        iam.put_role_policy(RoleName="studio", PolicyName="all", PolicyDocument=json.dumps(EVERYTHING))
        standin.account.iam.settle()
        keys = owner.client("sts").assume_role(RoleArn=ROLE, RoleSessionName="me")["Credentials"]
        super().__init__(keys["AccessKeyId"], keys["SecretAccessKey"], keys["SessionToken"], region_name="us-west-2")
        self._url = standin.url

    def client(self, *args: Any, **options: Any) -> Any:
        return super().client(*args, **{"endpoint_url": self._url, **options})


def test_a_session_of_the_sdk_brings_credentials_region_and_role(recipe: Path, session: Any, standin: StandIn) -> None:
    endpoint = toolkit.deploy(recipe, session=session, progress=Silent())

    sagemaker: Any = standin.session().client("sagemaker")
    (model,) = sagemaker.list_models()["Models"]
    assert sagemaker.describe_model(ModelName=model["ModelName"])["ExecutionRoleArn"] == ROLE
    assert toolkit.plan(recipe, session=session).changes == []
    assert toolkit.connect("hub", session=session).status() == endpoint.status()
    toolkit.destroy("hub", session=session, progress=Silent())
    assert sagemaker.list_endpoints()["Endpoints"] == []


def test_the_sdk_invokes_what_the_toolkit_deployed(recipe: Path, session: Any) -> None:
    from sagemaker.core.resources import Endpoint

    theirs = toolkit.deploy(recipe, session=session, progress=Silent()).sagemaker()

    assert isinstance(theirs, Endpoint)
    assert (theirs.endpoint_name, theirs.endpoint_status) == ("hub", "InService")
    answer = theirs.invoke(body=b'{"prompt": "Hello"}', content_type="application/json")
    assert json.loads(answer.body.read()) == {"prompt": "Hello"}
    assert theirs.refresh().endpoint_status == "InService"


def test_its_configuration_and_model_are_the_sdks_too(recipe: Path, session: Any) -> None:
    endpoint = toolkit.deploy(recipe, session=session, progress=Silent())
    config, model = endpoint.sagemaker_config(), endpoint.sagemaker_model()

    assert (type(config).__name__, type(model).__name__) == ("EndpointConfig", "Model")
    assert config.endpoint_config_name == endpoint.status().config
    assert model.model_name == config.production_variants[0].model_name
    assert model.execution_role_arn == ROLE


def test_the_model_of_a_component_is_its_own(tmp_path: Path, session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLKIT_POLL_SECONDS", "0.01")
    component = SERVED.replace("platform: {", "platform: {inference_component: {endpoint: shared}, ")
    endpoint = toolkit.deploy(write_hub_pair(tmp_path, component), session=session, progress=Silent())

    assert endpoint.sagemaker_model().primary_container.environment["SM_VLLM_SERVED_MODEL_NAME"] == "hub"
    with pytest.raises(UsageError, match="has no model: its components have one each"):
        endpoint.platform.sdk_object("shared", "model")


@pytest.mark.parametrize("form", ["name", "Endpoint", "Model"])
def test_what_the_sdk_serves_becomes_a_recipe(form: str, recipe: Path, session: Any, tmp_path: Path) -> None:
    endpoint = toolkit.deploy(recipe, session=session, progress=Silent())
    sources = {"name": "hub", "Endpoint": endpoint.sagemaker(), "Model": endpoint.sagemaker_model()}
    made = toolkit.from_sagemaker(sources[form], session=session, out=tmp_path / "theirs.yaml")

    theirs, ours = (YAML(typ="safe").load(path.read_text()) for path in (made.path, recipe))
    assert theirs["target"] == {"model": "org/target", "revision": "abc"}
    assert theirs["speculation"] == {**ours["speculation"], "revision": "abc"}
    known_of_the_endpoint = {"instance_types": ["ml.g6.xlarge"], "health_check_timeout": 600} if form != "Model" else {}
    assert theirs["platform"] == {"name": "sagemaker", "role": ROLE, **known_of_the_endpoint}
    limits = {"max_model_len": 1024, "max_num_batched_tokens": 16384, "max_num_seqs": 128}
    assert limits.items() <= theirs["engine"].items()
    assert {finding.code for finding in made.findings if finding.severity == "error"} == {"lock.missing"}


def test_what_is_no_model_of_the_sdk(session: Any, tmp_path: Path) -> None:
    with pytest.raises(EndpointNotFound, match="there is no endpoint nobody") as caught:
        toolkit.from_sagemaker("nobody", session=session, out=tmp_path / "theirs.yaml")
    assert "Its region is us-west-2" in caught.value.hint
    with pytest.raises(UsageError, match="dict is nothing that becomes a recipe"):
        toolkit.from_sagemaker({}, session=session)  # type: ignore[arg-type]
    assert list(tmp_path.glob("*.yaml")) == []


def test_a_session_of_local_mode_does_not_start_instances(recipe: Path, standin: StandIn) -> None:
    in_local_mode = SimpleNamespace(boto_session=standin.session(), local_mode=True)
    with pytest.raises(UsageError, match="a SimpleNamespace is for the SDK's local mode") as caught:
        toolkit.deploy(recipe, session=in_local_mode)
    assert 'platform="local"' in caught.value.hint
    assert standin.calls == []


def test_a_plan_is_applied_with_the_session_that_it_was_made_with(recipe: Path, session: Any) -> None:
    made = toolkit.plan(recipe, session=session)

    assert "session" not in made.to_dict()
    assert made.apply(progress=Silent()).status().status == "InService"


def test_a_boto3_session_does_as_well(recipe: Path, standin: StandIn) -> None:
    with pytest.raises(EndpointNotFound, match="there is no endpoint hub"):
        toolkit.connect(recipe, session=standin.session())
    assert len(standin.calls) > 0


def test_what_is_no_session_and_where_none_is_needed(recipe: Path, standin: StandIn) -> None:
    with pytest.raises(UsageError, match="session: str is no AWS session") as caught:
        toolkit.plan(recipe, session="us-west-2")  # type: ignore[arg-type]
    assert caught.value.hint == "Pass a boto3.Session, or a Session of the SageMaker SDK."
    with pytest.raises(UsageError, match="it is in region us-west-2, and eu-west-1 is asked for"):
        toolkit.connect("hub", session=standin.session(), region="eu-west-1")
    for platform, name in (("local", "the local platform"), ("kubernetes", "a cluster")):
        with pytest.raises(UsageError, match=f"session: {name} needs no AWS session"):
            toolkit.connect("hub", platform=platform, session=standin.session())
    assert standin.calls == []


def test_without_the_sdk_the_command_that_installs_it_is_named(
    recipe: Path, standin: StandIn, session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = toolkit.deploy(recipe, session=session, progress=Silent())
    monkeypatch.setitem(sys.modules, "sagemaker.core", None)

    with pytest.raises(MissingPackage) as caught:
        endpoint.sagemaker()
    assert caught.value.hint == "Run: pip install 'peagle-toolkit[sagemaker]'"


def test_an_endpoint_on_a_cluster_is_none_of_the_sdks() -> None:
    with pytest.raises(UsageError, match="llm is on a cluster, which the SageMaker SDK does not know") as caught:
        object.__new__(KubernetesPlatform).sdk_object("llm", "endpoint")
    assert "`endpoint.openai()`" in caught.value.hint
