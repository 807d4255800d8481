"""Words of programs around the engine, as their sources have them: one line of each kind, with its cause."""

from __future__ import annotations

import pytest
from botocore.session import get_session

import toolkit
from toolkit.apply.diagnose import diagnose

LINES = [
    ("TypeError: f() got multiple values for argument 'x'", "binary-mismatch"),
    ("TypeError: f() takes from 1 to 2 positional arguments but 3 were given", "binary-mismatch"),
    ("TypeError: f() takes at most 2 arguments (3 given)", "binary-mismatch"),
    ("TypeError: Can't instantiate abstract class Worker with abstract method run", "binary-mismatch"),
    ("TypeError: type 'array.array' is not subscriptable", "binary-mismatch"),
    ("TypeError: unsupported operand type(s) for |: 'type' and 'NoneType'", "binary-mismatch"),
    ("RuntimeError: Numpy is not available", "binary-mismatch"),
    ("RuntimeError: operator _C::rms_norm does not exist", "binary-mismatch"),
    ("NotImplementedError: Could not run '_C::a' with arguments from the 'CUDA' backend.", "binary-mismatch"),
    ("Exception: expected value at line 1 column 1", "tokenizer"),
    ("RuntimeError: Error(s) in loading state_dict for LlamaForCausalLM:", "tensors"),
    ("RuntimeError: \"index_cuda\" not implemented for 'Half'", "gpu-dtype"),
    ("RuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED", "kernel-fault"),
    ("RuntimeError: CUDA error: too many resources requested for launch", "kernel-fault"),
    ("RuntimeError: CUDA error: CUBLAS_STATUS_ARCH_MISMATCH when calling `cublasGemmEx`", "gpu-architecture"),
    ("RuntimeError: CUDA error: invalid device ordinal", "parallel"),
    ("RuntimeError: CUDA error: peer access is not supported between these two devices", "custom-all-reduce"),
    ("[1] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d", "rendezvous"),
    ("a:1:1 [0] transport/nvls.cc:1 NCCL WARN Cuda failure 3 'initialization error'", "nccl"),
    ("a:1:1 [0] transport/nvls.cc:1 NCCL WARN Cuda failure 2 'out of memory'", None),
    ("a:1:1 [0] misc/ibvwrap.cc:1 NCCL WARN Call to ibv_open_device failed", None),
    ("a:1:1 [0] misc/ibvwrap.cc:1 NCCL WARN Call to ibv_reg_mr failed", "nccl"),
    ("NCCL WARN Attribute arch of node cpu not found\n1 validation error for SpeculativeConfig", "speculation"),
    ("NCCL WARN Call to bind failed\n1 validation error for SpeculativeConfig", "speculation"),
    (
        "RuntimeError: CUDA driver error (/a/csrc/jit/handle.hpp:154): 700 (CUDA_ERROR_ILLEGAL_ADDRESS, a)",
        "kernel-fault",
    ),
    ("RuntimeError: CUDA driver error (/a/csrc/jit/handle.hpp:108): 2 (CUDA_ERROR_OUT_OF_MEMORY, a)", "gpu-memory"),
    ("RuntimeError: CUDA runtime error (csrc/jit/kernel_runtime.hpp:7): cudaErrorIllegalAddress", "kernel-fault"),
    ("RuntimeError: Assertion error (csrc/jit/handle.hpp:7): exit_code == 0", "kernel-build"),
    ("RuntimeError: cuDNN error: CUDNN_STATUS_NOT_SUPPORTED", "kernel-fault"),
    ("NVRM: Xid (PCI:0000:01:00): 145, RLW_SRC_TRACK Fatal XC0 i0 Link 00", "gpu-broken"),
    ("NVRM: Xid (PCI:0000:01:00): 145, RLW_SRC_TRACK Nonfatal XC0 i0 Link 00", None),
    ("Fatal Python error: Bus error", "shared-memory"),
    ("entry.sh: line 7:    42 Aborted (core dumped)", "segfault"),
    ("free(): invalid pointer", "segfault"),
    ("the process exited with code 143", None),
    ("      Exit Code:    132", "cpu-instructions"),
    ("      Exit Code:    127", "entrypoint"),
    ("/entry.sh: /bin/bash^M: bad interpreter: No such file or directory", "entrypoint"),
    ("qemu-x86_64: Could not open '/lib64/ld-linux-x86-64.so.2': No such file or directory", "image-architecture"),
    ("bash: fork: retry: Resource temporarily unavailable", "process-limit"),
    ("mkdir: cannot create directory '/.cache': Permission denied", "not-writable"),
    ("mkdir: cannot create directory '/.cache': Permission denied\nRuntimeError: No CUDA GPUs are available", "no-gpu"),
    ("terminate called after throwing an instance of 'std::bad_alloc'", "host-memory"),
    ("huggingface_hub.errors.XetDownloadError: a", "download-broken"),
    ("huggingface_hub.errors.RemoteEntryNotFoundError: a", "hub-missing"),
    ("huggingface_hub.errors.LocalTokenNotFoundError: a", "hub-token"),
    ("botocore.exceptions.SSLError: SSL validation failed for https://s3.amazonaws.com", "tls"),
    ("Failed: failed to authorize: failed to fetch oauth token: unexpected status: 403 Forbidden", "image-access"),
    ("Failed: failed to authorize: failed to fetch oauth token: denied: access forbidden", "image-access"),
    (
        'failed to authorize: failed to fetch anonymous token: Get "https://a/token": dial tcp 1.1.1.1:443: timeout',
        "image-pull",
    ),
    ("failed to authorize: failed to fetch anonymous token: unexpected status: 503 Service Unavailable", "image-pull"),
    ("failed to authorize: failed to fetch anonymous token: unexpected status: 429 Too Many", "image-rate-limit"),
    ("An error occurred (PermanentRedirect) when calling the ListObjectsV2 operation: a", "region"),
    ("FATAL: modprobe: could not insert 'neuron': No such device", "neuron-driver"),
    ("2 ERROR 7 [neuronx-cc]: Internal Compiler Error", "neuron-compile"),
    ("Error response from daemon: write /var/lib/docker/tmp/a: no space left on device", "disk-full"),
    ('Error response from daemon: Get "https://a/v2/": net/http: TLS handshake timeout', "image-pull"),
    ("Error response from daemon: Bind for 0.0.0.0:8080 failed: port is already allocated", "port-taken"),
    ("Error: Cannot perform an interactive login from a non TTY device", "image-access"),
    ("  Warning  OutOfmemory  2m  kubelet  Node didn't have enough resource: memory", "no-node"),
    ("  Warning  TopologyAffinityError  2m  kubelet  Resources cannot be allocated", "device-admission"),
    ("  Warning  FailedBinding  2m  a  no persistent volumes available for this claim", "volume"),
    ("  Warning  FailedMount  2m  kubelet  mount: wrong fs type, bad option, bad superblock on a", "volume"),
    ("  Normal   Killing  2m  kubelet  Container a failed liveness probe, will be restarted", "startup-probe"),
    ("  Warning  OOMKilling  2m  kernel-monitor  Memory cgroup out of memory: Killed process 7", "memory-limit"),
    (
        "  Warning  OOMKilling  2m  a  Memory cgroup out of memory: Killed process 7 (python3) total-vm:1kB",
        "memory-limit",
    ),
    ("Memory cgroup out of memory: Killed process 7 (VLLM::EngineCor), UID 0, total-vm:1kB", "memory-limit"),
    ("  Warning  OOMKilling  2m  a  Memory cgroup out of memory: Killed process 7 (prometheus) total-vm:1kB", None),
    ("  Warning  ImageGCFailed  2m  kubelet  wanted to free 7 bytes, but freed 0 bytes", "node-disk"),
    ("  Warning  ImageGCFailed  2m  kubelet  failed to get imageFs info: unable to find data in memory cache", None),
    ("ECS was unable to assume the role 'arn:aws:iam::1:role/a' that was provided for this task.", None),
    ("SageMaker is unable to assume role arn:aws:iam::1:role/a", "role-not-assumable"),
    ("NodeCreationFailure: a", "no-node"),
    ("Ec2SubnetInvalidConfiguration: a", "no-node"),
    ("  AutoScalingGroupName: eks-gpu-12345", None),
    ("  Ec2SubnetIds: subnet-1", None),
    ("  Ec2SecurityGroupId: sg-1", None),
    ("Error: ENOSPC: System limit for number of file watchers reached, watch '/app'", None),
    ("InsufficientFreeAddresses: a", "pod-network"),
    ("An error occurred (ClusterUnreachable): a", None),
]


@pytest.mark.parametrize(("line", "cause"), LINES, ids=[line.strip()[:50] for line, _ in LINES])
def test_what_programs_around_the_engine_say_is_told(line: str, cause: str | None) -> None:
    assert toolkit.explain(line).cause == cause


def test_every_code_of_a_node_group_s_issue_is_told_or_says_too_little() -> None:
    shape = get_session().get_service_model("eks").shape_for("NodegroupIssueCode")
    silent = {code for code in shape.metadata["enum"] if not toolkit.explain(f"{code}: of the node group")}
    assert silent == {
        "InternalFailure",
        "LimitExceeded",
        "NodeTerminationFailure",
        "PodEvictionFailure",
        "Unknown",
    }


@pytest.mark.parametrize(
    "line",
    [
        "Exit Code: 127",
        "Fatal Python error: Bus error",
        "mkdir: cannot create directory '/.cache': Permission denied",
        "bash: fork: retry: Resource temporarily unavailable",
        "huggingface_hub.errors.XetDownloadError: a",
        "  Warning  OOMKilling  2m  kernel-monitor  Memory cgroup out of memory: Killed process 7",
        "  Warning  FailedBinding  2m  a  no persistent volumes available for this claim",
        "  Warning  ImageGCFailed  2m  kubelet  wanted to free 7 bytes, but freed 0 bytes",
        "  Warning  FreeDiskSpaceFailed  2m  kubelet  Failed to garbage collect required amount of images.",
        "terminate called after throwing an instance of 'std::bad_alloc'",
        "(autoscaler +34s) Error: No available node types can fulfill resource request {'GPU': 1.0}.",
        "InsufficientFreeAddresses: a",
    ],
)
def test_what_may_come_of_something_else_ends_no_start_at_once(line: str) -> None:
    cause = diagnose([line]) or diagnose([], line)
    assert cause
    assert not cause.fatal


@pytest.mark.parametrize(
    ("line", "edit", "not_this"),
    [
        ("  Warning  ImageGCFailed  2m  kubelet  wanted to free 7 bytes, but freed 0", "larger disk", "was evicted"),
        ("An error occurred (PermanentRedirect) when calling the A operation: a", "get-bucket-location", "is signed"),
        ("Bind for 0.0.0.0:8000 failed: port is already allocated", "docker run -p", "run the same command"),
    ],
)
def test_words_of_a_table_have_an_edit_that_mends_them(line: str, edit: str, not_this: str) -> None:
    hint = toolkit.explain(line).hint
    assert edit in hint
    assert not_this not in hint
