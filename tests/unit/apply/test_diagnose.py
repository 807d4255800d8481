"""From a container's log, or AWS's words, to the cause.

The logs in tests/golden/logs are named after their cause. Those of vLLM 0.32.0 were written by it on a CPU and are
shortened; the others are put together from the words of their sources.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from toolkit import registry
from toolkit.apply.causes import words
from toolkit.apply.diagnose import diagnose, last_error
from toolkit.catalog.lookup import FOLDER
from toolkit.errors import Cause
from toolkit.images.command import TOO_FEW_IDS, TOO_FEW_IDS_HINT

LOGS = Path(__file__).parents[2] / "golden" / "logs"
FAILURES = Path(__file__).with_name("failures")
READ_IN_SOURCES = [FOLDER / "engines" / "vllm" / f"{name}.json" for name in ("refusals", "libraries")]
"""Causes whose words are all tried one by one (tests/unit/engines/test_refusal_patterns.py)."""
PING = (
    "The primary container for production variant AllTraffic did not pass the ping health check. Please check "
    "CloudWatch logs for this endpoint."
)
OURS = "written by vLLM 0.32.0 on a CPU"


@dataclass(frozen=True)
class Log:
    """What must come of a log: the start of the cause's line, a word of the edit, whether it is certain at once."""

    line: str
    edit: str
    source: str = OURS
    fatal: bool = True


OUT_OF_MEMORY = "OutOfMemoryError: CUDA out of memory. Tried to allocate"
GPU = "vLLM 0.30 gpu_model_runner.py, gpu_worker.py; PyTorch's words as in vllm-project/vllm#15598"
DEAD = {
    "architecture": Log("Value error, Model architectures ['Eagle3PEagleDraftModel'] are not supported", "convert"),
    "broken-json": Log("error: argument --speculative-config/-sc: Value {method:eagle3", "engine.version 0.24.0"),
    "cuda-driver": Log(
        "version 550.163.01 was detected", "engine.version", "NVIDIA's entrypoint as in deep-learning-containers#4990"
    ),
    "disk-full": Log("OSError: [Errno 28] No space left", "platform.instance_types", "huggingface_hub 2.4, CPython"),
    "eagle3-target": Log("AttributeError: Target model does not have 'embed_tokens'", "engine.version"),
    "engine-died": Log("KeyError: 'sinks'", "engine.version", "vLLM 0.30 v1/engine/core.py", fatal=False),
    "flag-value": Log("error: argument --max-logprobs: invalid int value: 'many'", "engine.args"),
    "gpu-architecture": Log("AcceleratorError: CUDA error: no kernel image", "engine.version", "PyTorch 2.13"),
    "gpu-memory": Log(OUT_OF_MEMORY, "engine.max_num_seqs", GPU),
    "gpu-memory-graphs": Log(OUT_OF_MEMORY, "max-cudagraph-capture-size", GPU),
    "gpu-memory-step": Log(OUT_OF_MEMORY, "engine.max_num_batched_tokens", GPU),
    "gpu-memory-taken": Log(
        "ValueError: Free memory on device cuda:0 (1.21/22.30 GiB)",
        "gpu-memory-utilization",
        "vLLM 0.30 v1/worker/utils.py",
        fatal=False,
    ),
    "gpu-memory-weights": Log(OUT_OF_MEMORY, "tensor-parallel-size", GPU),
    "hidden-size": Log("RuntimeError: The size of tensor a (384) must match", "speculation.model"),
    "host-memory": Log("ValueError: Available memory on node 0 (6.54/9.21 GiB)", "kv-cache-memory-bytes"),
    "hub-gated": Log("GatedRepoError: 403 Client Error.", "platform.weights: s3"),
    "hub-missing": Log("RevisionNotFoundError: 404 Client Error.", "target.model"),
    "hub-unreachable": Log("LocalEntryNotFoundError: An error happened while", "network.isolation", fatal=False),
    "killed": Log("Exception: WorkerProc initialization failed", "memory of the machine", fatal=False),
    "kv-cache-memory": Log("ValueError: No available memory for the cache blocks.", "engine.max_model_len"),
    "kv-groups": Log("AssertionError: All drafting layers should belong", "speculation.model"),
    "max-model-len": Log("Value error, User-specified max_model_len (4096) is greater", "engine.max_model_len"),
    "missing-package": Log("ImportError: Arctic Inference is required for suffix decoding", "container.dockerfile"),
    "mounted-for-root": Log(
        "PermissionError: [Errno 13] Permission denied: '/opt/ml/model'", "allow-other", "our entrypoint, as nobody"
    ),
    "nccl": Log("DistBackendError: NCCL error in: ", "NCCL_DEBUG", "PyTorch 2.13 ProcessGroupNCCL.cpp", fatal=False),
    "neuron-compile": Log(
        "RuntimeError: neuronx-cc compilation failed with 70.", "ahead", "aws-neuron/aws-neuron-sdk#1369", fatal=False
    ),
    "neuron-driver": Log("2026-Oct-27 11:03:22.0589", "driver", "aws-neuron/aws-neuron-sdk#655"),
    "no-engine": Log(
        "ModuleNotFoundError: No module named 'vllm'", "peagle-toolkit[local]", "containers/vllm/serve, CPython"
    ),
    "no-gpu": Log("RuntimeError: Failed to infer device type", "platform.instance_types", "vLLM 0.30 config/device.py"),
    "no-iptables": Log("Error: netavark: No such file or", "package iptables", "podman 4.3.1, netavark 1.4.0"),
    "no-mask-hidden": Log("ValueError: mask_hidden not found in weights but model is", "method: eagle3"),
    "no-mask-token": Log("ValueError: For parallel drafting, the draft model config must", "speculation.model"),
    "no-speculation": Log("Value error, --per-request-spec-decode-metrics requires", "speculative-config"),
    "no-subuids": Log("Error: writing blob: adding layer", "--add-subuids", "podman 4.3.1 as a user without ranges"),
    "port-taken": Log("OSError: [Errno 98] Address already in use", "engine.args", fatal=False),
    "shared-memory": Log(
        "error: Error while creating shared memory segment", "--shm-size", "NCCL 2.27 misc/shmutils.cc"
    ),
    "s3-access": Log(
        "ClientError: An error occurred (AccessDenied) when", "platform.role", "botocore, vLLM s3_utils.py"
    ),
    "supervisor-characters": Log("Error: Format string 'python3 -m vllm", "engine.args", "supervisor 4.3 options.py"),
    "tensor-parallel": Log("Value error, Total number of attention heads (4) must", "tensor-parallel-size"),
    "tensors": Log("ValueError: There is no module or parameter named 'model'", "toolkit convert"),
    "token-budget": Log("Value error, VllmConfig does not have enough slots", "engine.max_num_batched_tokens"),
    "unknown-flag": Log("error: unrecognized arguments: --not-a-flag", "engine.args"),
    "v2-runner": Log(
        "Value error, Model Runner V2 does not yet support: parallel drafting",
        "VLLM_USE_V2_MODEL_RUNNER",
        "vLLM 0.24 to 0.33 config/vllm.py",
    ),
    "vocabulary": Log("Value error, Target and draft model should have the same vocabulary size", "speculation.model"),
}
HEALTHY = ("starts", "noise")
UNHEALTHY = ("health-check-too-slow", "wrong-port", "ping-unanswered")

REFUSALS = {
    "in-progress": [
        'Cannot update in-progress endpoint "arn:aws:sagemaker:us-west-2:123456789012:endpoint/e".',
        "Cannot delete endpoint while it is being created",
    ],
    "not-ready": ["An error occurred (ModelNotReadyException) when calling the InvokeEndpoint operation: try later"],
    "credentials": [
        "An error occurred (ExpiredTokenException) when calling the CreateModel operation: The security token included "
        "in the request is expired",
        "Error when retrieving token from sso: Token has expired and refresh failed",
    ],
    "aws-missing": [
        "An error occurred (ObjectNotFoundException) when calling the PutScalingPolicy operation: No scalable target "
        "registered for service namespace: sagemaker, resource ID: endpoint/chat/variant/AllTraffic",
    ],
    "aws-unreachable": [
        'botocore.exceptions.ProxyConnectionError: Failed to connect to proxy URL: "http://proxy.example.com:3128"',
    ],
    "region": [
        "botocore.exceptions.NoRegionError: You must specify a region.",
        'Could not connect to the endpoint URL: "https://api.sagemaker.us-east-9.amazonaws.com/"',
    ],
    "namespace-missing": ['FailedApply: Error from server (NotFound): namespaces "ml" not found'],
    "kind-missing": ['FailedApply: no matches for kind "ScaledObject" in version "keda.sh/v1alpha1"'],
    "manifest-invalid": [
        'FailedApply: Deployment in version "v1" cannot be handled: strict decoding error: unknown field',
        "FailedApply: spec.selector: Invalid value: field is immutable",
    ],
    "cluster-unreachable": [
        "FailedApply: The connection to the server localhost:8080 was refused - did you specify the right host or port?"
    ],
    "cluster-credentials": ["FailedApply: error: You must be logged in to the server (Unauthorized)"],
    "capacity": [
        "Unable to provision requested ML compute capacity due to InsufficientInstanceCapacity error. Please retry "
        "using a different ML instance type or after some time.",
        "CapacityError: Unable to provision requested ML compute capacity. Please retry using a different ML instance "
        "type.",
    ],
    "quota": [
        "The account-level service limit 'ml.g7e.2xlarge for endpoint usage' is 0 Instances, with current utilization "
        "of 0 Instances and a request delta of 1 Instances. Please contact AWS support to request an increase for "
        "this limit. (ResourceLimitExceeded)"
    ],
    "throttling": ["create Model e: Rate exceeded (ThrottlingException)"],
    "s3-access": [
        'Could not access model data at s3://b/w/. Please ensure that the role "arn:aws:iam::123456789012:role/r" '
        'exists and that its trust relationship policy allows the action "sts:AssumeRole" for the service principal '
        '"sagemaker.amazonaws.com". Also ensure that the role has "s3:GetObject" permissions and that the object is '
        "located in eu-west-1. If your Model uses multiple models or uncompressed models, please ensure that the role "
        'has "s3:ListBucket" permission. (ValidationException)',
        'Failed to download model data for container "container_1" from URL: "s3://b/model.tar.gz". Please ensure '
        "that there is an object located at the URL and that the role passed to CreateModel has permissions to "
        "download the object.",
        "Could not find model data at s3://jumpstart-cache-prod-eu-central-1/artifacts/. (ValidationException)",
    ],
    "role-not-assumable": [
        "Could not assume role arn:aws:iam::123456789012:role/r. Please ensure that the role exists and allows "
        "principal 'sagemaker.amazonaws.com' to assume the role. (ValidationException)",
        "SageMaker is unable to perform: sts:AssumeRole on the role. Check if you have a trust relationship for "
        "'sagemaker.amazonaws.com' to assume the role.",
    ],
    "image-access": [
        "ErrImagePull: failed to authorize: failed to fetch anonymous token: 403 Forbidden",
        "The role 'arn:aws:iam::123456789012:role/r' does not have BatchGetImage permission for the image: "
        "'763104351884.dkr.ecr.us-east-1.amazonaws.com/vllm:0.30.0-gpu-py312-cu130-ubuntu24.04-sagemaker'.",
    ],
    "neuron-devices": ["Unschedulable: 0/3 nodes are available: 3 Insufficient aws.amazon.com/neuron."],
    "gpu-devices": ["Unschedulable: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu."],
    "device-claim": [
        "Unschedulable: 0/3 nodes are available: 3 cannot allocate all claims.",
        "Unschedulable: request neuron: device class neuron.aws.com does not exist",
    ],
    "volume": [
        "Unschedulable: pod has unbound immediate PersistentVolumeClaims.",
        'FailedMount: MountVolume.SetUp failed for volume "artifacts": rpc error: code = Internal',
    ],
    "no-node": ["Unschedulable: 0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector."],
    "image-pull": ["ErrImagePull: failed to pull and unpack image: dial tcp: lookup registry: i/o timeout"],
    "container-config": ['CreateContainerConfigError: container engine: secret "hub" not found'],
    "memory-limit": ["OOMKilled: container engine used up its memory limit"],
    "startup-probe": ["Unhealthy: Startup probe failed: HTTP probe failed with statuscode: 503"],
    "namespace-quota": [
        'FailedCreate: pods "chat-1" is forbidden: exceeded quota: small, requested: pods=1',
        'FailedCreate: pods "chat-1" is forbidden: failed quota: cpu: must specify limits.cpu for: engine',
    ],
    "limit-range": [
        'FailedCreate: pods "chat-1" is forbidden: maximum memory usage per Container is 1Gi, but limit is 27Gi',
        'FailedCreate: Pod "chat-1" is invalid: spec.containers[0].resources.requests: Invalid value: "3": must be '
        "less than or equal to cpu limit of 500m",
    ],
    "pod-security": [
        'FailedCreate: pods "chat-1" is forbidden: violates PodSecurity "restricted:latest": restricted volume types '
        '(volume "hub" uses restricted volume type "hostPath")'
    ],
    "pod-refused": [
        'FailedCreate: error looking up service account ml/chat: serviceaccount "chat" not found',
        "FailedCreate: pods \"chat-1\" is forbidden: ValidatingAdmissionPolicy 'team' with binding 'team' denied "
        "request: write the label `team`",
    ],
    "image-missing": [
        'ImagePullBackOff: Failed to pull image "vllm:9": rpc error: code = NotFound: vllm:9: not found',
        "Requested image 123456789012.dkr.ecr.us-west-2.amazonaws.com/vllm:9 not found. (ValidationException)",
        "manifest for 123456789012.dkr.ecr.us-west-2.amazonaws.com/vllm:9 not found: manifest unknown: Requested "
        "image not found",
    ],
    "log-key": [
        "The specified KMS key does not exist or is not allowed to be used with Arn "
        "'arn:aws:logs:us-west-2:123456789012:log-group:/aws/sagemaker/Endpoints/chat' (AccessDeniedException)"
    ],
    "kms-access": [
        "User: arn:aws:sts::123456789012:assumed-role/r/SageMaker is not authorized to perform: kms:CreateGrant on "
        "resource: arn:aws:kms:us-east-1:123456789012:key/abc because no resource-based policy allows the "
        "kms:CreateGrant action"
    ],
    "subnets": [
        "InsufficientFreeAddressesInSubnet: The specified subnet does not have enough free addresses to satisfy the "
        "request.",
        "The subnet ID 'subnet-0a1b2c3d' does not exist (ValidationException)",
    ],
    "download-timeout": ["Model data download for production variant AllTraffic timed out."],
    "service-failure": ["Request to service failed. If failure persists after retry, contact customer support."],
    "permissions": [
        "User: arn:aws:iam::123456789012:user/me is not authorized to perform: sagemaker:CreateModel on resource: "
        "arn:aws:sagemaker:us-west-2:123456789012:model/m (AccessDeniedException)"
    ],
    "object-missing": ['FailedApply: Error from server (NotFound): services "chat" not found'],
    "field-conflict": [
        'FailedApply: Apply failed with 1 conflict: conflict with "kubectl" using apps/v1: .spec.replicas'
    ],
    "training-data": ["ClientError: Data download failed:Found directory and file with the same name"],
    "training-time": ["MaxRuntimeExceeded: the training job exceeded MaxRuntimeInSeconds"],
    "rolled-back": ["The deployment was rolled back because the alarm chat-errors went into ALARM."],
    "docker-daemon": ["Cannot connect to the Docker daemon at unix:///var/run/docker.sock."],
    "image-build": ['process "/bin/sh -c make" did not complete successfully: exit code: 2'],
    "load-balancer": ["FailedBuildModel: Failed build model due to couldn't auto-discover subnets"],
}  # sources: causes.json of the platforms; `subnets` and `download-timeout` are unverified there
# What Kubernetes says begins with a reason: `ErrImagePull: …`. The messages of AWS's API may too.
OF_KUBERNETES = re.compile(
    r"(ErrImagePull|ImagePullBackOff|Unschedulable|Failed\w+|CreateContainerConfigError|OOMKilled|Unhealthy): "
)


def read(log: str) -> list[str]:
    return (LOGS / f"{log}.txt").read_text().splitlines()


def public_causes() -> set[str]:
    """Codes of the causes of public messages (test_explain.py)."""
    return {failure["cause"] for path in FAILURES.glob("*.json") for failure in json.loads(path.read_text())}


@pytest.mark.parametrize("code", DEAD)
def test_a_dead_container_tells_why(code: str) -> None:
    expected, cause = DEAD[code], diagnose(read(code), PING)
    assert cause
    assert cause.code == code
    assert cause.line.startswith(expected.line)
    assert expected.edit in cause.hint
    assert cause.fatal is expected.fatal


@pytest.mark.parametrize("code", DEAD)
def test_the_evidence_is_in_the_log(code: str) -> None:
    log, cause = "\n".join(read(code)), diagnose(read(code))
    assert cause
    assert 1 <= len(cause.evidence) <= 5
    assert all(line.removesuffix(" …") in log for line in cause.evidence)
    assert any(cause.line[:100] in line for line in cause.evidence)


def test_every_known_cause_has_its_log_and_every_log_its_cause() -> None:
    read = {cause["code"] for path in READ_IN_SOURCES for cause in json.loads(path.read_text(encoding="utf-8"))["log"]}
    assert set(DEAD) <= {known.code for known in words().log} <= set(DEAD) | public_causes() | read
    assert {path.stem for path in LOGS.glob("*.txt")} == {*DEAD, *HEALTHY, *UNHEALTHY}


@pytest.mark.parametrize(
    "line",
    [
        "Error: netavark: iptables: No such file or directory (os error 2)",
        "Error: netavark: nftables error: unable to execute nft: No such file or directory (os error 2)",
        'Error: error configuring network namespace: failed to locate iptables: exec: "iptables": executable file not',
    ],
)
def test_other_podmans_name_the_program_that_is_missing(line: str) -> None:
    cause = diagnose([line])
    assert cause
    assert cause.code == "no-iptables"


def test_a_start_and_a_build_know_the_same_words_of_missing_ids() -> None:
    (known,) = [known for known in words("local").log if known.code == "no-subuids"]
    assert known.words.pattern == f"(?:{TOO_FEW_IDS.pattern})".replace(".*", ".{0,300}")
    assert known.hint == TOO_FEW_IDS_HINT


@pytest.mark.parametrize("platform", registry.platforms())
def test_a_platform_has_no_words_of_another(platform: str) -> None:
    of = {"sagemaker": "service-failure", "kubernetes": "no-node"}
    shared = {"local": "sagemaker"}.get(platform, platform)
    codes = {known.code for known in words(platform).reasons}
    assert {name for name, code in of.items() if code in codes} == {shared}


@pytest.mark.parametrize("log", HEALTHY)
def test_a_healthy_start_has_no_cause(log: str) -> None:
    """Warnings of a low ulimit that quote an OSError, retries logged as errors, requests that were refused."""
    assert diagnose(read(log)) is None


@pytest.mark.parametrize(("code", "said"), [(code, said) for code, each in REFUSALS.items() for said in each])
def test_the_platforms_words_tell_why(code: str, said: str) -> None:
    cause = diagnose((), said, "kubernetes" if OF_KUBERNETES.match(said) else "sagemaker")
    assert cause
    assert (cause.code, cause.evidence[0][:40]) == (code, said[:40])
    assert cause.hint


def test_every_refusal_is_tried() -> None:
    assert set(REFUSALS) <= {known.code for known in words().reasons} <= set(REFUSALS) | public_causes()


def test_what_aws_refused_counts_more_than_what_an_older_container_wrote() -> None:
    cause = diagnose(read("hidden-size"), REFUSALS["capacity"][0])
    assert cause
    assert cause.code == "capacity"


@pytest.mark.parametrize(
    ("log", "line", "edit"),
    [
        ("health-check-too-slow", "it was still loading the target when", "platform.health_check_timeout"),
        ("wrong-port", "it listens on 0.0.0.0:8000, SageMaker asks port 8080", "engine.args"),
        ("ping-unanswered", 'it answers with an error: "GET /ping HTTP/1.1" 404', "engine.args"),
    ],
)
def test_a_failed_health_check_without_an_error_in_the_log(log: str, line: str, edit: str) -> None:
    cause = diagnose(read(log), PING)
    assert cause
    assert cause.code == log
    assert cause.line.startswith(line)
    assert edit in cause.hint


@pytest.mark.parametrize("log", UNHEALTHY)
def test_as_long_as_the_health_check_has_not_failed_nothing_is_wrong(log: str) -> None:
    assert diagnose(read(log)) is None


def test_a_failed_health_check_without_any_log() -> None:
    cause = diagnose((), PING)
    assert cause
    assert (cause.code, cause.line) == ("no-log", PING)
    assert "its CUDA is newer than the driver" in cause.hint


def test_what_may_go_away_is_certain_when_it_comes_again() -> None:
    again = diagnose([*read("killed"), *read("killed")])
    assert again
    assert again.fatal


def test_the_newest_start_counts() -> None:
    cause = diagnose([*read("killed"), *read("hidden-size")])
    assert cause
    assert cause.code == "hidden-size"


def test_an_error_before_a_start_that_worked_is_no_cause() -> None:
    assert diagnose(["OSError: [Errno 28] No space left on device", "INFO:     Application startup complete."]) is None


def test_the_key_that_is_refused_is_shown() -> None:
    """pydantic writes the key on a line of its own, before what it says of it."""
    cause = diagnose(["paralel_drafting", "  Unexpected keyword argument [type=unexpected_keyword_argument]"])
    assert cause
    assert cause.evidence[0] == "paralel_drafting"


def test_the_same_words_of_eight_workers_are_one_line() -> None:
    said = "ERROR 11-21 02:41:41 [a.py:1] RuntimeError: size mismatch for fc.weight"
    cause = diagnose([f"(Worker_TP{rank} pid={rank}) {said}" for rank in range(8)])
    assert cause == Cause(
        "hidden-size", "RuntimeError: size mismatch for fc.weight", cause.hint if cause else "",
        ("RuntimeError: size mismatch for fc.weight",), fatal=True,
    )  # fmt: skip


def test_an_endless_line_is_cut() -> None:
    cause = diagnose([f"ValueError: size mismatch {'x' * 9999}"])
    assert cause
    assert len(cause.line) < 400


@pytest.mark.parametrize("log", [[], [""], ["INFO all is well"], ["no error here"], ["KeyError: 'layers.7'"]])
def test_nothing_known(log: list[str]) -> None:
    assert diagnose(log) is None


def test_of_an_unknown_death_the_last_error_of_its_own_is_named() -> None:
    """The last process to die only says that another one knows the cause."""
    log = [
        "ValueError: first",
        "(Worker pid=1) ERROR 11-21 02:41:41 [a.py:1] KeyError: 'layers.7'",
        "RuntimeError: Frontend process failed. See root cause above.",
    ]
    assert last_error(log) == "KeyError: 'layers.7'"


def test_no_error_is_no_last_error() -> None:
    assert last_error(read("starts")) == ""
