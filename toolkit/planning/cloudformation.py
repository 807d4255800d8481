"""Resources as a CloudFormation template, for those who deploy through stacks. Pure.

Properties are named as in the API's requests, with the exceptions below. What CloudFormation lacks is the difference
between botocore 1.44.5 and the resource schemas in cfn-lint 1.58.0 (read 2026-11-21; a test takes it again). Whether
AWS makes a working stack of it is unverified.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from toolkit.engines.arguments import CONFIG_CHANNEL, DRAFTER_CHANNEL
from toolkit.errors import UsageError
from toolkit.planning.resources import Kind, Resource

STAGE_FIRST = "toolkit:stageFirst"
"""Key of the template's metadata: commands that make what is no resource, and has to be there before the stack."""

NOT_IN_CLOUDFORMATION = "toolkit:notInCloudFormation"
"""Key of the template's metadata: by logical id, the parts of the request that the template cannot express."""

TYPES: Mapping[Kind, str] = {
    "Bucket": "AWS::S3::Bucket",
    "Role": "AWS::IAM::Role",
    "Model": "AWS::SageMaker::Model",
    "EndpointConfig": "AWS::SageMaker::EndpointConfig",
    "LogGroup": "AWS::Logs::LogGroup",
    "MetricFilter": "AWS::Logs::MetricFilter",
    "Alarm": "AWS::CloudWatch::Alarm",
    "Dashboard": "AWS::CloudWatch::Dashboard",
    "Endpoint": "AWS::SageMaker::Endpoint",
    "InferenceComponent": "AWS::SageMaker::InferenceComponent",
    "ScalableTarget": "AWS::ApplicationAutoScaling::ScalableTarget",
    "ScalingPolicy": "AWS::ApplicationAutoScaling::ScalingPolicy",
}

_VARIANT_FIELDS = ("AcceleratorType", "AcceleratorPartitionLayouts", "RoutingConfig.RoutingStrategy=KV_AWARE")
LACKING: Mapping[Kind, frozenset[str]] = {
    "Model": frozenset(
        f"PrimaryContainer.{field}"
        for field in (
            "AdditionalModelDataSources",
            "ContainerMetricsConfig",
            "ModelDataSource.S3DataSource.ManifestS3Uri",
            "ModelDataSource.S3DataSource.ETag",
            "ModelDataSource.S3DataSource.ManifestEtag",
        )
    ),
    "EndpointConfig": frozenset(
        {
            "CrossRegionTrafficConfig",
            *(f"ProductionVariants.{field}" for field in _VARIANT_FIELDS),
            *(f"ShadowProductionVariants.{field}" for field in _VARIANT_FIELDS),
        }
    ),
    "InferenceComponent": frozenset({"Specification.ComputeResourceRequirements.AcceleratorPartitionType"}),
}
"""Fields of requests that CloudFormation's resource lacks, or `field=value` where it lacks but a value."""

_CHANNELS = "PrimaryContainer.AdditionalModelDataSources"
_IN_CHANNELS: Mapping[str, str] = {
    DRAFTER_CHANNEL: "drafter",
    CONFIG_CHANNEL: "flags that are too long for its environment",
}

# Field of a property: the kind that it names, and the attribute that gives the name (None: Ref).
_REFERENCES: Mapping[str, tuple[Kind, str | None]] = {
    "ModelName": ("Model", "ModelName"),
    "ModelNameOverride": ("Model", "ModelName"),
    "EndpointConfigName": ("EndpointConfig", "EndpointConfigName"),
    "EndpointName": ("Endpoint", "EndpointName"),
    "LogGroupName": ("LogGroup", None),
    "AlarmName": ("Alarm", None),
    "ExecutionRoleArn": ("Role", "Arn"),
}

_MAKE_BUCKET, _MAKES_BUCKET = "MakeBucket", "MakesBucket"
"""Parameter and condition."""

_Ids = Mapping[tuple[Kind, str], str]


def template(resources: Sequence[Resource]) -> dict[str, Any]:
    """The template that makes these resources, but for what its metadata says under `STAGE_FIRST`.

    It is for what is desired, not for the actions of a plan: an action that updates lacks what only making it needs.
    Raises UsageError for containers that start with compiled code: a stack has no channel to give it to them.
    """
    if any(item.kind == "Artifacts" for item in resources):
        message = "CloudFormation cannot give a container the code that was compiled ahead for it"
        raise UsageError(message, hint="Use `toolkit deploy`.")
    ids = _logical_ids(resources)
    made: dict[str, Any] = {}
    lost: dict[str, Any] = {}
    for item in resources:
        if item.kind in TYPES:
            logical_id = ids[item.kind, item.name]
            missing: dict[str, Any] = {}
            known = _known(item.request, "", LACKING.get(item.kind, frozenset()), missing)
            properties = _linked(_properties(item, known, resources), ids, logical_id)
            made[logical_id] = {"Type": TYPES[item.kind], "Properties": properties, **_attributes(item, ids)}
            lost |= {logical_id: missing} if missing else {}
            if "Alarm" in item.request:  # of a scaling policy: it starts the policy
                alarm = {**item.request["Alarm"], "AlarmActions": [{"Ref": logical_id}]}
                made[f"{logical_id}Alarm"] = {"Type": TYPES["Alarm"], "Properties": alarm}
    return {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": f"{', '.join(_names(resources, 'Endpoint'))}: made by toolkit plan --format cloudformation",
        "Metadata": {STAGE_FIRST: list(_stage_first(resources)), NOT_IN_CLOUDFORMATION: lost},
        **_bucket_switch(resources),
        "Resources": made,
        "Outputs": dict(_outputs(resources, ids)),
    }


def losses(made: Mapping[str, Any]) -> list[str]:
    """What a stack of the template lacks, one sentence each; none when it is all that `toolkit deploy` makes."""
    return [
        f"CloudFormation has no {field} for {made['Resources'][logical_id]['Type']} ({logical_id}): "
        + (_without_channels(lost) if field == _CHANNELS else "the stack differs from what `toolkit deploy` makes")
        for logical_id, fields in made["Metadata"][NOT_IN_CLOUDFORMATION].items()
        for field, lost in fields.items()
    ]


def _without_channels(lost: Sequence[Mapping[str, Any]]) -> str:
    """What becomes of a container whose files are not there."""
    names = [channel["ChannelName"] for channel in lost]
    what = " and ".join(_IN_CHANNELS[name] for name in names)
    effect = f"the container does not find its {what} there, and stops. Use `toolkit deploy`"
    if DRAFTER_CHANNEL not in names:
        return effect
    return f"{effect}; a drafter of the hub the container fetches itself with `platform: {{weights: hub}}`"


def _names(resources: Sequence[Resource], kind: Kind) -> list[str]:
    return [item.name for item in resources if item.kind == kind]


def _logical_ids(resources: Sequence[Resource]) -> dict[tuple[Kind, str], str]:
    """`EndpointTiny` for Endpoint tiny: letters and digits of the name, a number where two names share them."""
    ids: dict[tuple[Kind, str], str] = {}
    for item in resources:
        base = item.kind + "".join(word[0].upper() + word[1:] for word in re.findall(r"[A-Za-z0-9]+", item.name))
        alike = [taken for taken in ids.values() if re.fullmatch(rf"{base}(x\d+)?", taken)]
        ids[item.kind, item.name] = f"{base}x{len(alike) + 1}" if alike else base
    return ids


def _known(value: Any, path: str, lacking: frozenset[str], missing: dict[str, Any]) -> Any:
    """`value` without what CloudFormation lacks, which is put into `missing` by its path."""
    if isinstance(value, list):
        return [_known(item, path, lacking, missing) for item in value]
    if not isinstance(value, Mapping):
        return value
    kept: dict[str, Any] = {}
    for key, item in value.items():
        at = f"{path}.{key}" if path else key
        if at in lacking or f"{at}={item}" in lacking:
            missing[at] = item
            continue
        rest = _known(item, at, lacking, missing)
        if rest or not item:  # not what has become empty
            kept[key] = rest
    return kept


def _properties(item: Resource, request: Mapping[str, Any], resources: Sequence[Resource]) -> dict[str, Any]:
    match item.kind:
        case "Bucket":
            return {"BucketName": item.name}
        case "Role":
            document = json.loads(request["AssumeRolePolicyDocument"])
            return {**request, "AssumeRolePolicyDocument": document, "Policies": _policies(item.name, resources)}
        case "Endpoint":
            return {**item.update, **request}  # how it is updated stands in the resource, not in a call
        case "ScalableTarget":
            return {**request, "Tags": _pairs(request.get("Tags", {}))}
        case "ScalingPolicy":
            return {key: value for key, value in request.items() if key != "Alarm"}
        case "LogGroup":
            return _capitalized({**request, "tags": _pairs(request.get("tags", {}))})
        case "MetricFilter":
            transformations = [_transformation(item) for item in request["metricTransformations"]]
            return _capitalized({**request, "metricTransformations": transformations})
    return dict(request)


def _policies(role: str, resources: Sequence[Resource]) -> list[dict[str, Any]]:
    requests = [item.request for item in resources if item.kind == "RolePolicy" and item.request["RoleName"] == role]
    return [
        {"PolicyName": request["PolicyName"], "PolicyDocument": json.loads(request["PolicyDocument"])}
        for request in requests
    ]


def _transformation(request: Mapping[str, Any]) -> dict[str, Any]:
    dimensions = {"dimensions": _pairs(request["dimensions"])} if "dimensions" in request else {}
    return _capitalized({**request, **dimensions})


def _pairs(values: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in values.items()]


def _capitalized(request: Mapping[str, Any]) -> dict[str, Any]:
    """CloudWatch Logs begins its names with a small letter, CloudFormation none."""
    return {key[0].upper() + key[1:]: value for key, value in request.items()}


def _linked(value: Any, ids: _Ids, own: str) -> Any:
    """`value` with references in place of the names of other resources of the template."""
    if isinstance(value, list):
        return [_linked(item, ids, own) for item in value]
    if not isinstance(value, Mapping):
        return value
    return {key: _reference(key, item, ids, own) or _linked(item, ids, own) for key, item in value.items()}


def _reference(key: str, value: Any, ids: _Ids, own: str) -> dict[str, Any] | None:
    if key not in _REFERENCES or not isinstance(value, str):
        return None
    kind, attribute = _REFERENCES[key]
    other = ids.get((kind, value.rpartition("/")[2] if kind == "Role" else value))
    if other in (None, own):
        return None
    return {"Fn::GetAtt": [other, attribute]} if attribute else {"Ref": other}


def _attributes(item: Resource, ids: _Ids) -> dict[str, Any]:
    """What stands beside the properties."""
    if item.kind == "Bucket":
        return {"Condition": _MAKES_BUCKET, "DeletionPolicy": "Retain", "UpdateReplacePolicy": "Retain"}
    before = [ids[key] for key in _before(item) if key in ids]
    return {"DependsOn": before} if before else {}


def _before(item: Resource) -> Iterator[tuple[Kind, str]]:
    """What has to be there first and stands in no property, or only as part of a text."""
    if item.kind == "Endpoint":
        yield "LogGroup", f"/aws/sagemaker/Endpoints/{item.name}"
    elif item.kind == "InferenceComponent":
        yield "LogGroup", f"/aws/sagemaker/InferenceComponents/{item.name}"
    elif item.kind == "ScalableTarget":
        what, name = item.request["ResourceId"].split("/")[:2]
        yield ("Endpoint" if what == "endpoint" else "InferenceComponent"), name
    elif item.kind == "ScalingPolicy":
        yield "ScalableTarget", item.request["ResourceId"]


def _bucket_switch(resources: Sequence[Resource]) -> dict[str, Any]:
    """All endpoints of an account and region share the bucket, and weights are in it before a stack can serve them."""
    if not _names(resources, "Bucket"):
        return {}
    description = "yes: the stack makes the bucket, and leaves it behind; no: it is there already"
    parameter = {"Type": "String", "AllowedValues": ["yes", "no"], "Default": "no", "Description": description}
    return {
        "Parameters": {_MAKE_BUCKET: parameter},
        "Conditions": {_MAKES_BUCKET: {"Fn::Equals": [{"Ref": _MAKE_BUCKET}, "yes"]}},
    }


def _outputs(resources: Sequence[Resource], ids: _Ids) -> Iterator[tuple[str, dict[str, Any]]]:
    for item in resources:
        logical_id = ids[item.kind, item.name]
        if item.kind == "Endpoint":
            value: Any = {"Fn::GetAtt": [logical_id, "EndpointName"]}
            yield f"{logical_id}Name", {"Description": "Name of the endpoint", "Value": value}
        elif item.kind == "InferenceComponent":
            yield f"{logical_id}Name", {"Description": "Name of the inference component", "Value": item.name}


def _stage_first(resources: Sequence[Resource]) -> Iterator[dict[str, str]]:
    for item in resources:
        if item.kind == "Bucket":
            region = item.request.get("CreateBucketConfiguration", {}).get("LocationConstraint", "us-east-1")
            command = _shell("aws", "s3", "mb", f"s3://{item.name}", "--region", region)
            yield {"what": f"bucket {item.name}, unless it is there", "command": command}
        elif item.kind == "Image":
            # Its repository too: the image has to be in it before the stack makes a Model of it.
            yield {"what": f"the image {item.name}", "command": "toolkit build RECIPE"}
        elif item.kind == "Weights":
            yield {"what": f"weights {item.name}", "command": _upload(item.request)}
        elif item.kind == "WeightsUse":
            # Else `toolkit destroy` of another endpoint takes the weights for unused.
            yield {"what": f"mark of use {item.name}", "command": _put(item.request["Bucket"], item.request["Key"])}


def _upload(request: Mapping[str, Any]) -> str:
    """Of a folder, of a repository of the hub, or of small files that stand in the request."""
    bucket, to = request["Bucket"], f"s3://{request['Bucket']}/{request['Prefix']}"
    key = ["--sse", "aws:kms", "--sse-kms-key-id", request["KmsKeyId"]] if "KmsKeyId" in request else []
    hidden = ["--exclude", ".*", "--exclude", "*/.*"]
    if "Hub" in request:
        folder = request["Prefix"].rstrip("/").rpartition("/")[2]
        fetch = _shell("hf", "download", request["Hub"], "--revision", request["Revision"], "--local-dir", folder)
        sync = _shell("aws", "s3", "sync", folder, to, *hidden, *key)
        return " && ".join([fetch, sync, _put(bucket, request["Mark"])])
    if "Content" in request:
        copies = [
            f"{_shell('printf', '%s', text)} | {_shell('aws', 's3', 'cp', '-', to + name, *key)}"
            for name, text in request["Content"].items()
        ]
        return " && ".join(copies)
    return _shell("aws", "s3", "sync", request["Source"], to, *hidden, *key)


def _put(bucket: str, key: str) -> str:
    return _shell("aws", "s3api", "put-object", "--bucket", bucket, "--key", key)


def _shell(*words: str) -> str:
    return shlex.join(words)
