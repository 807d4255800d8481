"""What is read of an endpoint that AWS is changing."""

from __future__ import annotations

import datetime

import boto3
from botocore.stub import Stubber
from fakes import ACCOUNT

from toolkit.planning.names import ENDPOINT_TAG
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.kinds.base import Look
from toolkit.platforms.sagemaker.kinds.endpoint import EndpointKind

ARN = "arn:aws:sagemaker:us-east-1:111122223333:endpoint/e"


def test_the_configuration_that_an_update_leads_to_is_what_is_there() -> None:
    """So that the same command, given again, waits for its own update and makes no second one."""
    clients = Clients(boto3.Session("key", "secret", region_name="us-east-1"))
    now = datetime.datetime.now(datetime.UTC)
    described = {
        "EndpointName": "e",
        "EndpointArn": ARN,
        "EndpointConfigName": "old",
        "EndpointStatus": "Updating",
        "CreationTime": now,
        "LastModifiedTime": now,
        "PendingDeploymentSummary": {"EndpointConfigName": "new"},
    }
    with Stubber(clients.sagemaker) as aws:
        aws.add_response("describe_endpoint", described, {"EndpointName": "e"})
        aws.add_response("list_tags", {"Tags": [{"Key": ENDPOINT_TAG, "Value": "e"}]}, {"ResourceArn": ARN})
        look = Look(clients, ACCOUNT, (), ("e",), lambda _: False, lambda _: None)
        (found,) = EndpointKind(on_aws=True).observe_endpoint(look, "e")
    assert (found.ours, found.state["EndpointConfigName"], found.state["Running"]) == (True, "new", "old")
