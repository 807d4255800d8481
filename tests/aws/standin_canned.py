"""Operations that moto lacks, or gets wrong, as far as the product needs them."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

from moto.s3.models import FakeMultipart, s3_backends
from standin_account import AccountRules, digest_of, trusts_sagemaker
from standin_benchmarks import Benchmarks
from standin_cloudwatch import CloudWatch
from standin_codebuild import CodeBuild
from standin_http import Call, HttpAnswer, json_answer, page, xml_answer
from standin_iam import role_of
from standin_packages import Packages
from standin_runtime import Runtime
from standin_scaling import Scaling
from standin_training import Training

from toolkit.platforms.local.aws import ACCOUNT, Region, ServiceError, now
from toolkit.platforms.local.service import SageMaker

_NO_QUOTA = "NoSuchResourceException"
_PAGE_OF_PARTS = 1000
_JSON_SERVICES = ("application-autoscaling", "service-quotas", "pricing")


class Canned:
    """All of them. Tests fill `prices` (products as Pricing gives them) and `hub_contents`."""

    def __init__(self, account: AccountRules, sagemaker: Callable[[str], SageMaker]) -> None:
        self.prices: list[dict[str, Any]] = []
        self.hub_contents: list[dict[str, Any]] = []
        self.cloudwatch = CloudWatch()
        self.codebuild = CodeBuild(account)
        self.runtime = Runtime(sagemaker)
        self.scaling = Scaling(account, sagemaker)
        self.training = Training(account)
        self.packages = Packages()
        self.benchmarks = Benchmarks(account)
        self._account = account
        self._operations: Mapping[str, Callable[[Call], object]] = {
            **self.benchmarks.operations,
            **self.cloudwatch.operations,
            **self.codebuild.operations,
            **self.runtime.operations,
            **self.scaling.operations,
            **self.training.operations,
            **self.packages.operations,
            "iam:SimulatePrincipalPolicy": self._simulate,
            "service-quotas:ListServiceQuotas": lambda call: page("Quotas", self._quotas(), call, most=100),
            "service-quotas:ListAWSDefaultServiceQuotas": lambda call: page("Quotas", [], call, most=100),
            "service-quotas:GetServiceQuota": self._quota,
            "pricing:GetProducts": self._products,
            "sagemaker:DescribeHubContent": self._hub_content,
            "sagemaker:ListHubContents": self._hub_summaries,
            "ecr:BatchGetImage": self._images_of_aws,
            "s3:CompleteMultipartUpload": _must_exist,
            "s3:ListParts": _parts,
            **account.registry.operations,
            **account.plans.operations,
        }

    def answer(self, call: Call) -> HttpAnswer | None:
        """The answer, None when the operation is not here. Raises ServiceError when it is refused."""
        operation = self._operations.get(str(call))
        if operation is None:
            if call.service in _JSON_SERVICES:
                raise ServiceError(f"The stand-in has no {call}.", code="UnknownOperationException")
            return None
        answer = operation(call)
        return answer if isinstance(answer, HttpAnswer) or answer is None else json_answer(answer)

    def leftovers(self) -> list[str]:
        """What exists here."""
        return [*self.scaling.leftovers(), *self.packages.leftovers(), *self.benchmarks.leftovers()]

    def _simulate(self, call: Call) -> HttpAnswer:
        """Of an execution role what its policies say, of anybody else that all is allowed but what tests deny."""
        role = role_of(call.request["PolicySourceArn"])
        evaluated = role.arn if role and trusts_sagemaker(role) else None
        iam = self._account.iam

        def is_refused(action: str, resource: str) -> bool:
            return action in self._account.denied or bool(evaluated and not iam.would(evaluated, action, resource))

        members = "".join(
            f"<member><EvalActionName>{action}</EvalActionName><EvalResourceName>{resource}</EvalResourceName>"
            f"<EvalDecision>{'implicitDeny' if is_refused(action, resource) else 'allowed'}</EvalDecision>"
            "<MatchedStatements/><MissingContextValues/></member>"
            for action in call.request["ActionNames"]
            for resource in call.request.get("ResourceArns", ["*"])
        )
        results = f"<IsTruncated>false</IsTruncated><EvaluationResults>{members}</EvaluationResults>"
        return xml_answer("SimulatePrincipalPolicy", results)

    def _quotas(self) -> list[dict[str, Any]]:
        return [
            {
                "ServiceCode": "sagemaker",
                "ServiceName": "Amazon SageMaker",
                "QuotaCode": f"L-{hashlib.sha256(name.encode()).hexdigest()[:8].upper()}",
                "QuotaName": f"{name} for endpoint usage",
                "Value": float(value),
                "Adjustable": True,
                "GlobalQuota": False,
            }
            for name, value in sorted(self._account.quotas.items())
        ]

    def _quota(self, call: Call) -> object:
        found = [quota for quota in self._quotas() if quota["QuotaCode"] == call.request["QuotaCode"]]
        if not found:
            raise ServiceError("The request failed because the specified service quota does not exist.", _NO_QUOTA)
        return {"Quota": found[0]}

    def _products(self, call: Call) -> object:
        wanted = {item["Field"]: item["Value"] for item in call.request.get("Filters", [])}
        found = [
            json.dumps(item)
            for item in self.prices
            if item.get("serviceCode") == call.request["ServiceCode"]
            and all(item["product"]["attributes"].get(key) == value for key, value in wanted.items())
        ]
        return {"FormatVersion": "aws_v1", **page("PriceList", found, call, most=100)}

    def _hub_content(self, call: Call) -> object:
        keys = ("HubName", "HubContentType", "HubContentName", "HubContentVersion")
        wanted = {key: call.request[key] for key in keys if key in call.request}
        found = [item for item in self.hub_contents if wanted.items() <= item.items()]
        if not found:
            name = wanted["HubContentName"]  # unverified wording
            raise ServiceError(f"Hub content {name} does not exist in {wanted['HubName']}.", "ResourceNotFound")
        return {**found[-1], **_hub_arns(found[-1], Region(call.region))}

    def _hub_summaries(self, call: Call) -> object:
        request, region = call.request, Region(call.region)
        found = [
            {key: item[key] for key in item if key not in ("HubContentDocument", "HubName")}
            | {"HubContentArn": _hub_arns(item, region)["HubContentArn"]}
            for item in self.hub_contents
            if (item["HubName"], item["HubContentType"]) == (request["HubName"], request["HubContentType"])
            and request.get("NameContains", "") in item["HubContentName"]
        ]
        return page("HubContentSummaries", found, call, most=10)

    def _images_of_aws(self, call: Call) -> object:
        """BatchGetImage of a registry that is not our own; that of our own is moto's."""
        registry, repository = call.request.get("registryId", ACCOUNT), call.request["repositoryName"]
        if registry == ACCOUNT or registry not in self._account.registries:
            return None
        wanted = {f"{repository}:{item['imageTag']}" for item in call.request["imageIds"] if "imageTag" in item}
        images = [
            {
                "registryId": registry,
                "repositoryName": repository,
                "imageId": {"imageTag": image.partition(":")[2], "imageDigest": digest_of(image)},
                "imageManifest": "{}",
            }
            for image in sorted(wanted & self._account.images)
        ]
        return {"images": images, "failures": []}


def hub_content(name: str, document: Mapping[str, Any] | str, **more: Any) -> dict[str, Any]:
    """A model of SageMaker's public hub as DescribeHubContent gives it; its document is JSON."""
    return {
        "HubName": "SageMakerPublicHub",
        "HubContentName": name,
        "HubContentVersion": "1.0.0",
        "HubContentType": "Model",
        "DocumentSchemaVersion": "2.3.0",
        "HubContentDocument": document if isinstance(document, str) else json.dumps(document),
        "HubContentStatus": "Available",
        "CreationTime": now(),
        **more,
    }


def _hub_arns(item: Mapping[str, Any], region: Region) -> dict[str, str]:
    prefix = f"arn:{region.partition}:sagemaker:{region.name}:aws"
    content = "/".join(item[key] for key in ("HubName", "HubContentType", "HubContentName", "HubContentVersion"))
    return {"HubArn": f"{prefix}:hub/{item['HubName']}", "HubContentArn": f"{prefix}:hub-content/{content}"}


def _upload(call: Call) -> FakeMultipart:
    bucket = s3_backends[ACCOUNT]["aws"].buckets.get(call.request["Bucket"])
    upload = bucket.multiparts.get(call.request["UploadId"]) if bucket else None
    if upload is None:
        raise ServiceError("The specified upload does not exist.", code="NoSuchUpload")
    return upload


def _must_exist(call: Call) -> None:
    """moto completes an upload, and has no answer where there is none; the same call may come twice."""
    key = s3_backends[ACCOUNT]["aws"].get_object(call.request["Bucket"], call.request["Key"])
    if not (key and key.multipart and key.multipart.id == call.request["UploadId"]):
        _upload(call)


def _parts(call: Call) -> HttpAnswer:
    """The parts of an upload with their SHA-256, which moto leaves out; a page has a thousand."""
    upload = _upload(call)
    later = [number for number in upload.partlist if number > int(call.request.get("PartNumberMarker", 0))]
    shown, sha256 = later[:_PAGE_OF_PARTS], upload.metadata.get("x-amz-checksum-algorithm") == "SHA256"
    parts = ""
    for number in shown:
        checksum = base64.b64encode(hashlib.sha256(upload.parts[number].value).digest()).decode() if sha256 else ""
        parts += f"<Part><PartNumber>{number}</PartNumber><ETag>{upload.parts[number].etag}</ETag>"
        parts += f"<Size>{upload.parts[number].size}</Size><ChecksumSHA256>{checksum}</ChecksumSHA256></Part>"
    more = "".join(f"<NextPartNumberMarker>{number}</NextPartNumberMarker>" for number in shown[-1:])
    page = f"<IsTruncated>{str(len(later) > len(shown)).lower()}</IsTruncated>{more}{parts}"
    return HttpAnswer("200 OK", [("Content-Type", "text/xml")], f"<ListPartsResult>{page}</ListPartsResult>".encode())
