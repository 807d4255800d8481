"""What SageMaker does as the execution role: one that was made may do it; `check` says when another may not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from moto.cloudwatch.models import cloudwatch_backends
from pairs import HUB_RECIPE, write_hub_pair
from standin import ACCOUNT, StandIn
from standin_user import TRUST, User, one

import toolkit
from toolkit.apply.progress import Silent
from toolkit.errors import PlatformError
from toolkit.findings import Finding
from toolkit.platforms.sagemaker.account import account_findings

FROM_HUB = HUB_RECIPE.replace("platform: {", "platform: {role: create, weights: hub, ")
COMPONENT = FROM_HUB.replace("role: create", "role: create, inference_component: {endpoint: shared}")
SETTINGS = {
    "all at once": FROM_HUB,
    "canary": FROM_HUB + "scaling: {min_instances: 2, max_instances: 2}\nrollout: {update: canary}\n",
    "rolling": FROM_HUB + "scaling: {min_instances: 2, max_instances: 2}\nrollout: {update: rolling}\n",
    "shadow": FROM_HUB + "rollout: {shadow: true}\n",
    "component": COMPONENT + "rollout: {update: rolling}\n",
    "own alarm": FROM_HUB + "rollout: {alarms: [latency]}\n",
    "own composite alarm": FROM_HUB + "rollout: {alarms: [any]}\n",
}
WITHOUT_ALARMS = {
    "Version": "2012-10-17",
    "Statement": [
        {
            "Effect": "Allow",
            "NotAction": "cloudwatch:DescribeAlarms",
            "Resource": "*",
        }
    ],
}
DENIED = "not authorized to perform: cloudwatch:DescribeAlarms"


@pytest.fixture(autouse=True)
def environment(standin: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**standin.environment(), "TOOLKIT_POLL_SECONDS": "0.01"}.items():
        monkeypatch.setenv(name, value)


def make_alarm(standin: StandIn, name: str) -> None:
    standin.session().client("cloudwatch").put_metric_alarm(
        AlarmName=name,
        ComparisonOperator="GreaterThanThreshold",
        EvaluationPeriods=1,
        MetricName="Latency",
        Namespace="ours",
        Period=60,
        Statistic="Sum",
        Threshold=1.0,
    )


def make_alarms(standin: StandIn) -> None:
    """Two alarms of the user's own. moto keeps composite ones, but has no PutCompositeAlarm."""
    make_alarm(standin, "latency")
    make_alarm(standin, "any")
    cloudwatch_backends[ACCOUNT]["us-west-2"].alarms["any"].rule = "ALARM(latency)"


def make_role(standin: StandIn, *statements: dict[str, Any]) -> str:
    """A role that may do all but look at alarms, and what these statements say."""
    iam: Any = standin.session().client("iam")
    arn: str = iam.create_role(RoleName="ours", AssumeRolePolicyDocument=json.dumps(TRUST))["Role"]["Arn"]
    document = json.dumps({**WITHOUT_ALARMS, "Statement": [*WITHOUT_ALARMS["Statement"], *statements]})
    iam.put_role_policy(RoleName="ours", PolicyName="all", PolicyDocument=document)
    standin.account.iam.settle()
    return arn


@pytest.mark.parametrize("text", SETTINGS.values(), ids=SETTINGS)
def test_an_update_that_alarms_roll_back(standin: StandIn, tmp_path: Path, text: str) -> None:
    make_alarms(standin)
    recipe = write_hub_pair(tmp_path, text)
    toolkit.deploy(recipe, progress=Silent())
    recipe.write_text(text.replace("num_speculative_tokens: 7", "num_speculative_tokens: 4"))
    toolkit.deploy(recipe, progress=Silent())
    assert toolkit.plan(recipe).changes == []
    updates = [
        call.request for call in standin.calls if call.operation in ("UpdateEndpoint", "UpdateInferenceComponent")
    ]
    assert all(request["DeploymentConfig"]["AutoRollbackConfiguration"]["Alarms"] for request in updates)
    assert len(updates) == 1


def test_a_role_that_may_not_look_at_alarms_is_refused(standin: StandIn, user: User) -> None:
    """Developer guide, deployment-guardrails-configuration; wording unverified."""
    user.deploy("ep")
    user.create_config("other", one("ep"))
    make_alarm(standin, "errors")
    iam: Any = user.session.client("iam")
    iam.put_role_policy(RoleName="execution", PolicyName="all", PolicyDocument=json.dumps(WITHOUT_ALARMS))
    standin.account.iam.settle()
    config: Any = {"AutoRollbackConfiguration": {"Alarms": [{"AlarmName": "errors"}]}}
    with pytest.raises(ClientError, match=DENIED):
        user.sagemaker.update_endpoint(EndpointName="ep", EndpointConfigName="other", DeploymentConfig=config)


def role_findings(recipe: Path) -> list[Finding]:
    found = toolkit.check(recipe, account=account_findings).findings
    return [finding for finding in found if finding.code == "account.role-permissions"]


def test_the_role_of_a_recipe_that_may_not_look_at_its_alarms(standin: StandIn, tmp_path: Path) -> None:
    arn = make_role(standin)
    recipe = write_hub_pair(tmp_path, FROM_HUB.replace("role: create", f"role: {arn}"))
    (finding,) = role_findings(recipe)
    assert (finding.severity, finding.path) == ("error", "platform.role")
    assert finding.message == (
        f"the execution role {arn} may not cloudwatch:DescribeAlarms on the alarms that roll back an update"
    )
    granted = json.loads(finding.hint.partition(": ")[2])
    assert granted["Resource"] == [f"arn:aws:cloudwatch:us-west-2:{ACCOUNT}:alarm:toolkit-hub-errors"]
    toolkit.deploy(recipe, progress=Silent())
    recipe.write_text(recipe.read_text().replace("num_speculative_tokens: 7", "num_speculative_tokens: 4"))
    with pytest.raises(PlatformError, match=DENIED):
        toolkit.deploy(recipe, progress=Silent())
    document = json.dumps({"Version": "2012-10-17", "Statement": [granted]})
    iam: Any = standin.session().client("iam")
    iam.put_role_policy(RoleName="ours", PolicyName="alarms", PolicyDocument=document)
    assert role_findings(recipe) == []
    toolkit.deploy(recipe, progress=Silent())


@pytest.mark.parametrize("more", ["", "observability: {alarms: false}\n"])
def test_the_role_of_a_recipe_that_may_do_it_or_need_not(standin: StandIn, tmp_path: Path, more: str) -> None:
    granted = {"Effect": "Allow", "Action": "cloudwatch:Describe*", "Resource": "*"}
    arn = make_role(standin, *([] if more else [granted]))
    recipe = write_hub_pair(tmp_path, FROM_HUB.replace("role: create", f"role: {arn}") + more)
    assert role_findings(recipe) == []
