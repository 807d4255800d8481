"""What a user of the stand-in does over and over, shortened for tests."""

from __future__ import annotations

import json
from typing import Any

from standin import StandIn

from toolkit.platforms.sagemaker.clients import Clients

IMAGE = "763104351884.dkr.ecr.us-west-2.amazonaws.com/vllm:server-sagemaker-cuda-v2.5"
TRUST = {
    "Version": "2012-10-17",
    "Statement": [
        {"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole"},
    ],
}

# As much as AmazonSageMakerFullAccess gives a role of what SageMaker does in its name.
EVERYTHING = {
    "Version": "2012-10-17",
    "Statement": [
        {
            "Effect": "Allow",
            "Action": ["cloudwatch:*", "ec2:*", "ecr:*", "kms:*", "logs:*", "s3:*"],
            "Resource": "*",
        },
    ],
}


def clients_with(standin: StandIn, bucket: str, region: str = "us-west-2") -> Clients:
    """Clients of the product's own, of an account that has this bucket."""
    clients = Clients(standin.session(region))
    place: Any = {"LocationConstraint": region}
    clients.s3.create_bucket(Bucket=bucket, CreateBucketConfiguration=place)
    return clients


class User:
    """Somebody with an execution role and a bucket of weights, in one region."""

    def __init__(self, standin: StandIn, region: str = "us-west-2") -> None:
        self.session = standin.session(region)
        self.sagemaker: Any = self.session.client("sagemaker")
        self.runtime: Any = self.session.client("sagemaker-runtime")
        self.scaling: Any = self.session.client("application-autoscaling")
        self.logs: Any = self.session.client("logs")
        self.role = self._make_role(standin)
        self.weights = self._make_weights(region)

    def create_model(self, name: str, **container: Any) -> None:
        container = {"Image": IMAGE, "ModelDataSource": self.weights, **container}
        container = {key: value for key, value in container.items() if value is not None}
        self.sagemaker.create_model(ModelName=name, ExecutionRoleArn=self.role, PrimaryContainer=container)

    def create_config(self, name: str, *variants: dict[str, Any], **request: Any) -> None:
        self.sagemaker.create_endpoint_config(EndpointConfigName=name, ProductionVariants=list(variants), **request)

    def create(self, name: str, **variant: Any) -> None:
        """Model, configuration and endpoint of the same name."""
        self.create_model(name)
        self.create_config(name, one(name, **variant))
        self.sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)

    def deploy(self, name: str, **variant: Any) -> None:
        """Create it and wait until it is in service."""
        self.create(name, **variant)
        assert self.statuses(name, 2) == ["Creating", "InService"]

    def deploy_for_components(self, name: str) -> None:
        """An endpoint in service that inference components can go to."""
        self.create_config(name, one(None), ExecutionRoleArn=self.role)
        self.sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)
        assert self.statuses(name, 2) == ["Creating", "InService"]

    def create_component(self, name: str, endpoint: str, **specification: Any) -> None:
        specification = {"ComputeResourceRequirements": {"MinMemoryRequiredInMb": 1024}, **specification}
        if "Container" not in specification:
            self.create_model(name)
            specification = {"ModelName": name, **specification}
        self.sagemaker.create_inference_component(
            InferenceComponentName=name,
            EndpointName=endpoint,
            VariantName="only",
            Specification=specification,
            RuntimeConfig={"CopyCount": 1},
        )

    def describe(self, endpoint: str) -> Any:
        return self.sagemaker.describe_endpoint(EndpointName=endpoint)

    def describe_component(self, name: str) -> Any:
        return self.sagemaker.describe_inference_component(InferenceComponentName=name)

    def statuses(self, endpoint: str, looks: int) -> list[str]:
        return [self.describe(endpoint)["EndpointStatus"] for _ in range(looks)]

    def component_statuses(self, name: str, looks: int) -> list[str]:
        return [self.describe_component(name)["InferenceComponentStatus"] for _ in range(looks)]

    def invoke(self, endpoint: str, body: Any = None, **request: Any) -> Any:
        answer = self.runtime.invoke_endpoint(EndpointName=endpoint, Body=json.dumps(body or {}), **request)
        return json.loads(answer["Body"].read())

    def log(self, group: str) -> list[str]:
        streams = self.logs.describe_log_streams(logGroupName=group)["logStreams"]
        pages = [
            self.logs.get_log_events(logGroupName=group, logStreamName=stream["logStreamName"], startFromHead=True)
            for stream in streams
        ]
        return [event["message"] for page in pages for event in page["events"]]

    def _make_role(self, standin: StandIn) -> str:
        iam = self.session.client("iam")
        role: str = iam.create_role(RoleName="execution", AssumeRolePolicyDocument=json.dumps(TRUST))["Role"]["Arn"]
        iam.put_role_policy(RoleName="execution", PolicyName="all", PolicyDocument=json.dumps(EVERYTHING))
        standin.account.iam.settle()
        return role

    def _make_weights(self, region: str) -> dict[str, Any]:
        bucket = f"weights-{region}"
        s3: Any = self.session.client("s3")
        s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": region})
        s3.put_object(Bucket=bucket, Key="target/config.json", Body=b"{}")
        return source(f"s3://{bucket}/target/")


def one(model: str | None, **variant: Any) -> dict[str, Any]:
    """A production variant; what is None is left out."""
    variant = {
        "VariantName": "only",
        "ModelName": model,
        "InitialInstanceCount": 1,
        "InstanceType": "ml.g6e.xlarge",
        **variant,
    }
    return {key: value for key, value in variant.items() if value is not None}


def source(uri: str) -> dict[str, Any]:
    """Model data under an S3 prefix."""
    return {"S3DataSource": {"S3Uri": uri, "S3DataType": "S3Prefix", "CompressionType": "None"}}
