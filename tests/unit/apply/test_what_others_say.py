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
    ("RuntimeError: CUDA error: no CUDA-capable device is detected", "no-gpu"),
    ("RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 34: CUDA driver is a stub library", "no-gpu"),
    ("RuntimeError: CUDA error: API call is not supported in the installed CUDA driver", "cuda-driver"),
    ("RuntimeError: CUDA error: PTX JIT compiler library not found", "cuda-driver"),
    ("RuntimeError: CUDA error: a PTX JIT compilation failed", "gpu-architecture"),
    ("RuntimeError: CUDA error: initialization error", "gpu-broken"),
    ("RuntimeError: CUDA error: exclusive-thread device already in use by a different thread", "gpu-broken"),
    (
        "RuntimeError: CUDA error: MPS client failed to connect to the MPS control daemon or the MPS server",
        "gpu-broken",
    ),
    ("RuntimeError: CUDA error: invalid program counter", "kernel-fault"),
    ("RuntimeError: CUDA error: named symbol not found", "binary-mismatch"),
    (
        "RuntimeError: CUDA error: operation would make the legacy stream depend on a capturing blocking stream",
        "graph-capture",
    ),
    ("RuntimeError: CUDA error: operation failed due to a previous error during capture", "graph-capture"),
    ("RuntimeError: CUDA error: OS call failed or operation not supported on this OS", "host-memory"),
    ("RuntimeError: CUDA error: invalid argument", None),
    ("RuntimeError: CUDA error: invalid resource handle", None),
    ("RuntimeError: cuDNN error: CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH", "binary-mismatch"),
    ("RuntimeError: CUDA error: CUBLAS_STATUS_MAPPING_ERROR when calling `cublasCreate`", "kernel-fault"),
    (
        "RuntimeError: Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False.",
        "no-gpu",
    ),
    ("RuntimeError: Attempting to deserialize object on CUDA device 3 but torch.cuda.device_count() is 1.", "parallel"),
    ("pynvml.NVMLError_DriverNotLoaded: Driver Not Loaded", "no-gpu"),
    ("a:1:1 [0] bootstrap.cc:84 NCCL WARN Bootstrap : no socket interface found", "rendezvous"),
    ("a:1:1 [0] NCCL WARN Bootstrap Root : mismatch in rank count from procs 4 : 8", "rendezvous"),
    ("a:1:1 [0] misc/socket.cc:1 NCCL WARN socketPollConnect: connect to 10.0.0.1<7> returned", "nccl"),
    ("a:1:1 [0] NCCL WARN NET/IB : Got completion from peer 10.0.0.1<7> with status=12", "nccl"),
    (
        "a:1:1 [0] misc/shmutils.cc:1 NCCL WARN Error: failed to extend /dev/shm/nccl-Y to 33030532 bytes",
        "shared-memory",
    ),
    ("a:1:1 [0] NCCL WARN Mismatched NCCL version detected : rank 0 version 22703", "binary-mismatch"),
    ("a:1:1 [0] NCCL WARN NET/OFI Unable to register MR: Cannot allocate memory", "process-limit"),
    ("a:1:1 [0] NCCL WARN Could not find a path for pattern 4, falling back to simple order", None),
    ("torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError", "rendezvous"),
    ("RuntimeError: [gloo/transport/tcp/device.cc:84] ifa != nullptr. Unable to find address for: eth7", "rendezvous"),
    ("RuntimeError: Rank 3 failed to pass monitoredBarrier in 300000 ms", "rendezvous"),
    ("RuntimeError: Socket Timeout", "rendezvous"),
    ("2026-1-1 ERROR HAL:al_sdma_wait m2m ring count timed out", "neuron-execution"),
    ("CCOM WARN Timeout waiting for RX (waited 120 sec)", "neuron-collectives"),
    ("NEFF version: 3.0, Currently supporting: 2.9", "neuron-driver"),
    (
        "  Warning  FailedBuildModel  2m  ingress  couldn't auto-discover subnets",
        "load-balancer",
    ),
    ("  Warning  SyncLoadBalancerFailed  2m  service-controller  Error syncing load balancer", "load-balancer"),
    (
        "failed to introspect vpcID: failed to get VPC ID from instance metadata",
        "load-balancer",
    ),
    ("  Warning  NodeSelectorMismatching  2m  daemonset  a", "no-node"),
    ("  Warning  FileSystemResizeFailed  2m  kubelet  a", "volume"),
    ("driver name efs.csi.aws.com not found in the list of registered CSI drivers", "volume"),
    ("mount.nfs4: access denied by server while mounting 10.0.0.1:/", "volume"),
    (
        'Failed to resolve "fs-0123456789abcdef0.efs.eu-west-1.amazonaws.com" - check it',
        "volume",
    ),
    ("  Warning  SysctlForbidden  2m  kubelet  forbidden sysctl: net.core.somaxconn", "pod-refused"),
    ('Error: failed to prepare subPath for volumeMount "a" of container "b"', "container-config"),
    ("  Warning  Failed  2m  kubelet  Error: ImageInspectError", "image-pull"),
    ("  Warning  Rebooted  2m  kubelet  Node a has been rebooted, boot id: b", "node-lost"),
    ("no amis exist given constraints", "no-node"),
    (
        "  Warning  NoCompatibleInstanceTypes  2m  karpenter  NodePool requirements filtered out all",
        "no-node",
    ),
    ("Message: Node not registered with cluster  Reason: NodeNotFound", "no-node"),
    ("Reason: StartupTaintsExist", "no-node"),
    (
        'Reason: ResourceNotRegistered  Message: Resource "nvidia.com/gpu" was requested but not registered',
        "gpu-devices",
    ),
    (
        'Reason: ResourceNotRegistered  Message: Resource "aws.amazon.com/neuron" was requested but not registered',
        "neuron-devices",
    ),
    ("panic: timed out waiting for caches to sync", "kind-missing"),
    (
        'E0101 00:00:00.000000 1 controller.go:1] "Unhandled Error" err="timed out waiting for caches to sync"\n'
        'I0101 00:00:01.000000 1 shared_informer.go:1] "Caches are synced" controller="a"',
        None,
    ),
    (
        "E0101 00:00:00.000000 1 controller.go:1] timed out waiting for caches to sync\n"
        "I0101 00:00:01.000000 1 controller.go:1] Starting workers",
        None,
    ),
    ("  Warning  KEDAMetricSourceFailed  2m  keda  a", "autoscaler-metric"),
    ("toolkit validation failed", "gpu-runtime"),
    ('Error from server (NotFound): deployments.apps "a" not found', "object-missing"),
    ('Error from server (AlreadyExists): services "a" already exists', "name-taken"),
    ('error: Apply failed with 1 conflict: conflict with "kubectl" using apps/v1: .spec.replicas', "field-conflict"),
    ('error: no context exists with the name: "a"', "cluster-unreachable"),
    (
        'E0101 memcache.go:265] couldn\'t get current server API group list: Get "http://localhost:8080/api"',
        "cluster-unreachable",
    ),
    ("kubernetes.config.config_exception.ConfigException: Service host/port is not set.", "cluster-unreachable"),
    ("kubernetes.client.exceptions.ApiException: (401)", "cluster-credentials"),
    ("kubernetes.client.exceptions.ApiException: (404)", "object-missing"),
    ("kubernetes.client.exceptions.ApiException: (422)", "manifest-invalid"),
    ("kubernetes.client.exceptions.ApiException: (503)", "cluster-unreachable"),
    (
        "MaxRetryError: HTTPSConnectionPool(host='A.gr7.eu-west-1.eks.amazonaws.com') NewConnectionError",
        "cluster-unreachable",
    ),
    (
        "Error: INSTALLATION FAILED: chart requires kubeVersion: >=1.30 which is incompatible with Kubernetes v1.29",
        "helm-release",
    ),
    ("Received 0 SUCCESS signal(s) out of 2. Unable to satisfy 100% MinSuccessfulInstancesPercent", "no-node"),
    ("ClientError: Data download failed:PermanentRedirect (301): The bucket is in this region", "region"),
    ("ClientError: Data download failed:Failed to download data. AccessDenied (403): Access Denied", "s3-access"),
    ("ClientError: Data download failed:NoSuchKey (404): The specified key does not exist.", "s3-missing"),
    ("ClientError: Data download failed:Please ensure that there is enough disk space", "disk-full"),
    ("ClientError: Data download failed:Found directory and file with the same name", "training-data"),
    ("ClientError: Artifact upload failed:Insufficient disk space", "disk-full"),
    ("ClientError: Artifact upload failed:Error 5: a", "s3-access"),
    (
        "ClientError: Cannot pull algorithm container.",
        "image-access",
    ),
    ("InternalServerError: We encountered an internal error.  Please try again.", "service-failure"),
    ("SecondaryStatus: MaxRuntimeExceeded", "training-time"),
    ("AlgorithmError: ExecuteUserScriptError: Command a, exit code: 137", "killed"),
    ("Please use an instance type with more memory, or reduce the size of training data", "host-memory"),
    (
        '(ValidationException) when calling the A operation: Could not find endpoint configuration "a".',
        "aws-missing",
    ),
    ("Update failed: the deployment was rolled back because the alarm a went into ALARM", "rolled-back"),
    ("An error occurred (504) when calling the HeadObject operation: Gateway Timeout", "service-failure"),
    ("An error occurred (RequestTimeTooSkewed) when calling the ListBuckets operation: a", "credentials"),
    ("An error occurred (RequestTimeout) when calling the PutObject operation: a", "connection-closed"),
    ("An error occurred (OptInRequired) when calling the DescribeInstances operation: a", "permissions"),
    ("An error occurred (InvalidParameterValue) when calling the CreateRole operation: a", "request-invalid"),
    ("An error occurred (BucketAlreadyOwnedByYou) when calling the CreateBucket operation: a", "name-taken"),
    ("An error occurred (KMS.DisabledException) when calling the GetObject operation: a", "kms-access"),
    ("AttributeError: 'SageMaker' object has no attribute 'create_inference_component'", "request-invalid"),
    ("botocore.exceptions.UnknownServiceError: Unknown service: 'a'", "request-invalid"),
    (
        "botocore.exceptions.FlexibleChecksumError: Expected checksum a did not match calculated checksum: b",
        "download-broken",
    ),
    ("The config profile (a) could not be found", "credentials"),
    ('Resource handler returned message: "a" (RequestToken: b, HandlerErrorCode: AlreadyExists)', "name-taken"),
    ('Resource handler returned message: "a" (RequestToken: b, HandlerErrorCode: NotFound)', "aws-missing"),
    ('Resource handler returned message: "a" (RequestToken: b, HandlerErrorCode: ServiceLimitExceeded)', "quota"),
    (
        "ERROR: Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?",
        "docker-daemon",
    ),
    (
        "permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock",
        "docker-daemon",
    ),
    (
        "docker.errors.DockerException: Error while fetching server API version: ('Connection aborted.')",
        "docker-daemon",
    ),
    ("bash: docker: command not found", "docker-daemon"),
    (
        "Error response from daemon: client version 1.22 is too old. Minimum supported API version is 1.24",
        "docker-daemon",
    ),
    ('ERROR: process "/bin/sh -c make" did not complete successfully: exit code: 2', "image-build"),
    ("The command '/bin/sh -c make' returned a non-zero code: 2", "image-build"),
    ("ERROR: failed to solve: failed to read dockerfile: open Dockerfile: no such file or directory", "image-build"),
    ("COPY failed: file not found in build context", "image-build"),
    (
        "ERROR: failed to solve: a/b:9: failed to resolve source metadata for docker.io/a/b:9: not found",
        "image-missing",
    ),
    ("Error response from daemon: login attempt to https://a/v2/ failed with status: 400 Bad Request", None),
    ("denied: Your authorization token has expired. Reauthenticate and try again.", "image-access"),
    ("denied: requested access to the resource is denied", "image-access"),
    ("OSError: Could not find model weights in /a", None),
    ("error: failed to solve: unexpected status: 404 Not Found", "image-missing"),
    ("OCI runtime create failed: runc create failed: namespace path: lstat /proc/0/ns/ipc: no such file", None),
    (
        'error getting credentials - err: exec: "docker-credential-ecr-login": executable file not found in $PATH',
        "image-access",
    ),
    (
        "tag invalid: The image tag 'a' already exists and cannot be overwritten because the tag is immutable.",
        "name-taken",
    ),
    (
        'docker: Error response from daemon: invalid mount config for type "bind": bind source path does not exist: /a',
        "container-config",
    ),
    ('image operating system "windows" cannot be used on this platform', "image-architecture"),
    ("docker: invalid reference format.", "image-missing"),
    ("http: server gave HTTP response to HTTPS client", "tls"),
    (
        "error pulling image configuration: download failed after attempts=6: dial tcp 1.1.1.1:443: i/o timeout",
        "image-pull",
    ),
    ('failed to copy: httpReadSeeker: failed open: failed to do request: Get "https://a/b": EOF', "image-pull"),
    ("RuntimeError: Data processing error: Permission denied (os error 13)", "not-writable"),
    ("RuntimeError: Data processing error: File reconstruction error: a", "download-broken"),
    ("WARN Data processing error: CAS service error: connection reset, retrying in 2s", None),
    ("Data processing error: retrying (attempt 1 of 5)", None),
    ("RuntimeError: Data processing error: CAS service error: failed after retrying 5 times", "download-broken"),
    (
        "RuntimeError: An error occurred while downloading using `hf_transfer`.",
        "download-broken",
    ),
    (
        "ValueError: Fast download using 'hf_transfer' is enabled but 'hf_transfer' package is not available",
        "missing-package",
    ),
    ("RuntimeError: No supported CUDA architectures found for major versions [12].", "gpu-architecture"),
    ("ClientError: Could not find image 1.dkr.ecr.us-east-1.amazonaws.com/a:b in the repository", "image-missing"),
    (
        "OCI runtime create failed: could not apply required modification: unresolvable CDI devices nvidia.com/gpu=0",
        "gpu-runtime",
    ),
    (
        "OSError: Local entry not found. Cannot reach https://huggingface.co/a/resolve/main/b: offline mode is enabled",
        "hub-unreachable",
    ),
    ("Error response from daemon: login attempt to https://a/v2/ failed with status: 401 Unauthorized", "image-access"),
    ("  Normal  ExternalProvisioning  2m  persistentvolume-controller  waiting for a volume to be created", "volume"),
    ("Value error, Must use group quantization strategy in order to apply activation ordering", "quantization"),
    (
        "NotImplementedError: Model architecture a was supported in vLLM until v0.9 and is not supported anymore.",
        "architecture",
    ),
    ("torch.distributed.DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed.", "rendezvous"),
    ("[c10d] recvValue failed on SocketImpl(fd=90): failed to recv, got 0 bytes", "rendezvous"),
    ("a:1:1 [0] NCCL WARN NET/IB : mlx5_0:1 Got async event : local catastrophic error", "nccl"),
    ("a:1:1 [0] NCCL WARN NET/IB : mlx5_0:1 async fatal event on QP (0x7f): local access violation", "nccl"),
    (
        "  Normal  ExternalProvisioning  2m48s (x42 over 13m)  persistentvolume-controller  Waiting for a volume to be "
        "created either by the external provisioner 'ebs.csi.aws.com' or manually by the system administrator.",
        "volume",
    ),
    ("  Normal  ExternalProvisioning  5s (x80 over 20m)  a  Waiting for a volume to be created either by a", "volume"),
    ('docker: image operating system "linux" cannot be used on this platform', "docker-daemon"),
    ("Error saving credentials: error storing credentials - err: exit status 1, out: `a`", "image-access"),
    (
        'runc create failed: unable to start container process: exec: "docker-credential-a": executable file not found '
        "in $PATH",
        "entrypoint",
    ),
    ("/bin/sh: 1: docker: not found", "docker-daemon"),
    (
        "  Warning  FailedDeployModel  2m  ingress  Failed deploy model due to operation error CreateLoadBalancer, "
        "https response error StatusCode: 403, api error AccessDenied: User: b is not authorized to perform: c:D",
        "permissions",
    ),
    ("FailureReason: We encountered an internal error. Please try again.", "service-failure"),
    ('error: context "chat" does not exist', "cluster-unreachable"),
    (
        'ERROR: failed to solve: failed to fetch anonymous token: Get "https://auth.docker.io/token": dial tcp: i/o '
        "timeout",
        "image-pull",
    ),
    ("ERROR: failed to solve: vllm/vllm-openai:v9: docker.io/vllm/vllm-openai:v9: not found", "image-missing"),
    (
        'ERROR: failed to solve: failed to compute cache key: failed to calculate checksum of ref a: "/b": not found',
        "image-build",
    ),
    (
        "libfabric:7:1::efa:mr:efa_mr_reg_impl():1 Unable to register MR of 16777216 bytes: Cannot allocate memory, "
        "ibv pd: 0x1, total mr reg size 1, mr reg count 2",
        "process-limit",
    ),
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
        "RuntimeError: CUDA error: initialization error",
        "a:1:1 [0] bootstrap.cc:84 NCCL WARN Bootstrap : no socket interface found",
        "RuntimeError: Socket Timeout",
        "CCOM WARN Timeout waiting for RX (waited 120 sec)",
        "  Warning  FailedBuildModel  2m  ingress  Failed build model due to a",
        "no amis exist given constraints",
        "Reason: StartupTaintsExist",
        "InternalServerError: We encountered an internal error.  Please try again.",
        "Cannot connect to the Docker daemon at unix:///var/run/docker.sock",
        "RuntimeError: Data processing error: a",
        "RuntimeError: DeepSeek-V3 Tool parser could not locate tool call start/end tokens in the tokenizer!",
        "RuntimeError: KimiK2ReasoningParser could not locate think start/end tokens in the tokenizer!",
        "HandlerErrorCode: NotStabilized)",
        "Unable to register MR of 1048576 bytes: Cannot allocate memory, flags 0, ibv pd: 0x3",
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
        (
            'error getting credentials - err: exec: "docker-credential-desktop": executable file not found in $PATH',
            "remove `credsStore`",
            "ECR login lasts",
        ),
        ('image operating system "linux" cannot be used on this platform', "Linux containers", "architecture"),
        ('image operating system "windows" cannot be used on this platform', "for Windows", "architecture"),
        ("bash: line 1: docker: command not found", "install Docker", "systemctl start"),
        ("ClientError: Cannot pull algorithm container. Either the image does not exist or a", "no such image", "403"),
    ],
)
def test_words_of_a_table_have_an_edit_that_mends_them(line: str, edit: str, not_this: str) -> None:
    hint = toolkit.explain(line).hint
    assert edit in hint
    assert not_this not in hint


@pytest.mark.parametrize(
    ("routine", "cause"),
    [
        ("Type: Registered, Status: Unknown -> False, Reason: NodeNotFound, Message: Node not registered with cluster",
         "no-node"),
        ('Reason: ResourceNotRegistered, Message: Resource "nvidia.com/gpu" was requested but not registered',
         "gpu-devices"),
    ],
)  # fmt: skip
def test_what_is_routine_while_a_node_comes_stands_behind_all_else(routine: str, cause: str) -> None:
    assert toolkit.explain(routine).cause == cause
    taken = 'Error from server (AlreadyExists): services "a" already exists'
    assert toolkit.explain(f"{routine}\n{taken}").cause == "name-taken"


def test_a_container_s_own_error_is_told_before_its_node_s_end() -> None:
    reason = "Rebooted: Node a has been rebooted, boot id: b"
    assert toolkit.explain(reason=reason).cause == "node-lost"
    log = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
    assert toolkit.explain(log, reason=reason).cause == "gpu-memory"
