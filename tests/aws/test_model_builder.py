"""The SageMaker SDK's ModelBuilder both ways. The genuine one needs `pip install 'sagemaker>=3,<4'`, which no lock has:
it brings torch and mlflow. Without it the tests of the genuine one are skipped.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from pairs import HUB_RECIPE, write_hub_pair
from ruamel.yaml import YAML
from standin import StandIn
from standin_user import IMAGE, User

import toolkit
from toolkit.apply.progress import Silent
from toolkit.errors import UsageError

# The SDK's own code has escapes that Python warns of, and fields that pydantic does.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")

NO_TELEMETRY = "SchemaVersion: '1.0'\nSageMaker: {PythonSDK: {Modules: {TelemetryOptOut: true}}}\n"
TARGET, DRAFTER = "s3://weights-us-west-2/target/", "s3://weights-us-west-2/target/drafter/"
DATA = {"S3DataSource": {"S3Uri": TARGET, "S3DataType": "S3Prefix", "CompressionType": "None"}}


@pytest.fixture
def recipe(tmp_path: Path, user: User, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of models that are in S3 already, so that `deploy` copies nothing."""
    monkeypatch.setenv("TOOLKIT_POLL_SECONDS", "0.01")
    s3: Any = user.session.client("s3")
    s3.put_object(Bucket="weights-us-west-2", Key="target/drafter/config.json", Body=b"{}")
    text = HUB_RECIPE.replace("org/target", TARGET).replace("org/drafter", DRAFTER)
    text = text.replace("platform: {", f"platform: {{role: {user.role}, ")
    models = {"target": {"model": TARGET, "revision": ""}, "drafter": {"model": DRAFTER, "revision": ""}}
    return write_hub_pair(tmp_path, text, **models)


class Everywhere(boto3.Session):
    """A session whose clients all talk to the stand-in; the SDK names AWS's address of STS itself."""

    def __init__(self, standin: StandIn) -> None:
        keys = standin.environment()
        super().__init__(keys["AWS_ACCESS_KEY_ID"], keys["AWS_SECRET_ACCESS_KEY"], region_name="us-west-2")
        self._url = standin.url

    def client(self, *args: Any, **options: Any) -> Any:
        return super().client(*args, **{**options, "endpoint_url": self._url})

    def resource(self, *args: Any, **options: Any) -> Any:
        return super().resource(*args, **{**options, "endpoint_url": self._url})


@pytest.fixture
def session(standin: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The SDK's session, with its telemetry off."""
    config = tmp_path / "sagemaker.yaml"
    config.write_text(NO_TELEMETRY)
    for name in ("SAGEMAKER_ADMIN_CONFIG_OVERRIDE", "SAGEMAKER_USER_CONFIG_OVERRIDE"):
        monkeypatch.setenv(name, str(config))
    for name, value in standin.environment().items():  # importing it makes a client
        monkeypatch.setenv(name, value)
    pytest.importorskip("sagemaker.serve", reason="ModelBuilder needs: pip install 'sagemaker>=3,<4'")
    from sagemaker.core.helper.session_helper import Session

    return Session(boto_session=Everywhere(standin))


def test_a_model_builder_makes_what_deploy_makes(recipe: Path, session: Any, standin: StandIn) -> None:
    builder = toolkit.to_sagemaker(recipe, session=session)
    model = builder.build("theirs")
    theirs = builder.deploy("theirs", wait=False)

    toolkit.deploy(recipe, session=session, progress=Silent())
    sagemaker: Any = standin.session().client("sagemaker")
    made, wanted = (_served(sagemaker, name) for name in (theirs.endpoint_name, "hub"))
    assert model.model_name == made["ModelName"]
    for key in ("Image", "Environment", "ModelDataSource", "AdditionalModelDataSources"):
        assert made["PrimaryContainer"][key] == wanted["PrimaryContainer"][key]
    for key in ("ExecutionRoleArn", "InstanceType", "ContainerStartupHealthCheckTimeoutInSeconds"):
        assert made[key] == wanted[key]
    assert made.get("InferenceAmiVersion") == wanted.get("InferenceAmiVersion")
    assert made.get("ModelDataDownloadTimeoutInSeconds") == wanted.get("ModelDataDownloadTimeoutInSeconds")


def test_a_genuine_model_builder_becomes_the_recipe_it_came_from(recipe: Path, session: Any, tmp_path: Path) -> None:
    builder = toolkit.to_sagemaker(recipe, session=session)
    theirs, ours = _read(toolkit.from_sagemaker(builder, out=tmp_path / "theirs.yaml").path), _read(recipe)

    assert theirs["target"] == ours["target"]
    assert theirs["speculation"] == ours["speculation"]
    timeout = ours["platform"].pop("health_check_timeout")  # which is an argument of its `deploy`
    assert theirs["platform"] == ours["platform"]
    assert builder.container_startup_health_check_timeout == timeout


def _served(sagemaker: Any, endpoint: str) -> dict[str, Any]:
    config = sagemaker.describe_endpoint(EndpointName=endpoint)["EndpointConfigName"]
    (variant,) = sagemaker.describe_endpoint_config(EndpointConfigName=config)["ProductionVariants"]
    return {**sagemaker.describe_model(ModelName=variant["ModelName"]), **variant}


def _read(path: Path) -> dict[str, Any]:
    data: dict[str, Any] = YAML(typ="safe").load(path.read_text())
    return data


def builder(**given: Any) -> Any:
    """What is read of a ModelBuilder, with the genuine one's defaults."""
    defaults = {
        "model": None,
        "model_path": "/tmp/sagemaker/model-builder/0",
        "image_uri": IMAGE,
        "env_vars": {},
        "s3_model_data_url": None,
        "role_arn": "arn:aws:iam::123456789012:role/studio",
        "instance_type": "ml.g6.xlarge",
        "network": None,
        "mode": SimpleNamespace(name="SAGEMAKER_ENDPOINT"),
        "sagemaker_session": None,
        "_user_provided_instance_type": True,
    }
    return SimpleNamespace(**{**defaults, **given})


@pytest.mark.parametrize(
    ("given", "target"),
    [
        ({"model": "Qwen/Qwen3-8B"}, "Qwen/Qwen3-8B"),
        ({"env_vars": {"SM_VLLM_MODEL": "Qwen/Qwen3-8B"}, "model": "other/one"}, "Qwen/Qwen3-8B"),
        ({"s3_model_data_url": DATA}, TARGET),
        ({"s3_model_data_url": "s3://mine/plain"}, "s3://mine/plain/"),
        ({"model_path": "s3://mine/path/"}, "s3://mine/path/"),
        ({"model": "s3://mine/model/"}, "s3://mine/model/"),
    ],
)
def test_the_model_of_a_model_builder(given: dict[str, Any], target: str, tmp_path: Path) -> None:
    made = _read(toolkit.from_sagemaker(builder(**given), out=tmp_path / "theirs.yaml").path)
    assert made["target"] == {"model": target}
    assert made["platform"]["instance_types"] == ["ml.g6.xlarge"]


def test_what_the_sdk_made_up_is_not_taken_over(tmp_path: Path) -> None:
    made_up = f"s3://sagemaker-us-west-2-123456789012/model-builder/model/{'0a' * 16}/"
    with pytest.raises(UsageError, match="the container names no model"):
        toolkit.from_sagemaker(builder(s3_model_data_url=made_up))
    given = builder(model="Qwen/Qwen3-8B", s3_model_data_url=made_up, _user_provided_instance_type=False)
    made = _read(toolkit.from_sagemaker(given, out=tmp_path / "theirs.yaml").path)
    assert (made["target"]["model"], "instance_types" in made["platform"]) == ("Qwen/Qwen3-8B", False)


@pytest.mark.parametrize("given", [{"mode": SimpleNamespace(name="LOCAL_CONTAINER")}, {"instance_type": "local_gpu"}])
def test_local_mode_becomes_the_local_platform(given: dict[str, Any], tmp_path: Path) -> None:
    made = _read(toolkit.from_sagemaker(builder(model="Qwen/Qwen3-8B", **given), out=tmp_path / "theirs.yaml").path)
    assert made["platform"] == {"name": "local"}


@pytest.mark.parametrize(
    ("given", "says", "hint"),
    [
        ({"model": object()}, "its model is a object", "toolkit new ./FOLDER"),
        ({"model": "huggingface-llm-x"}, "a model of JumpStart", "toolkit new jumpstart:huggingface-llm-x"),
    ],
)
def test_a_model_that_cannot_be_named(given: dict[str, Any], says: str, hint: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        toolkit.from_sagemaker(builder(**given))
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("change", "says", "hint"),
    [
        (("platform: {", "platform: {inference_component: {}, "), "one model, without component", "sagemaker_model()"),
        (("[ml.g6.xlarge]", "[ml.g6.xlarge, ml.g6e.xlarge]"), "on one instance type", "sagemaker_model()"),
        (("name: sagemaker", "name: local"), "runs on platform `local`, not on SageMaker", "toolkit deploy does not"),
    ],
)
def test_what_a_model_builder_cannot_make(
    change: tuple[str, str], says: str, hint: str, recipe: Path, standin: StandIn
) -> None:
    text = recipe.read_text()
    if "local" in change[1]:
        text = text.replace(", instance_types: [ml.g6.xlarge], health_check_timeout: 600", "")
    recipe.write_text(text.replace(*change))
    with pytest.raises(UsageError, match=says) as caught:
        toolkit.to_sagemaker(recipe, session=None if "local" in change[1] else standin.session())
    assert hint in caught.value.hint


def test_weights_on_the_hub_are_not_for_a_model_builder(user: User, tmp_path: Path, standin: StandIn) -> None:
    """Weights that are not in S3 yet, or that no copy of is wanted."""
    for weights, says in (("s3", "does not make a copy of files in S3"), ("hub", "names a folder that is empty")):
        text = HUB_RECIPE.replace("platform: {", f"platform: {{weights: {weights}, role: {user.role}, ")
        with pytest.raises(UsageError, match=says):
            toolkit.to_sagemaker(write_hub_pair(tmp_path, text), session=standin.session())


def test_without_model_builder_the_command_that_installs_it_is_named(
    recipe: Path, standin: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sagemaker.serve", None)
    with pytest.raises(UsageError, match="the SDK's ModelBuilder is not installed") as caught:
        toolkit.to_sagemaker(recipe, session=standin.session())
    assert caught.value.hint == "Run: pip install 'sagemaker>=3,<4'"
