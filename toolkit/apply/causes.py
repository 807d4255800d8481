"""The causes of failed deployments that we know: the words that show each, and the edit that mends it.

`REASONS` are the words of AWS: FailureReason of DescribeEndpoint and the messages of refused API calls. `LOG` are the
words of a container. In both tables the first entry that fits wins, so the special stands before the general. Sources
stand at the entries; where none does, the words are in the sources of vLLM 0.16 to 0.33 (all of them, or as noted).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from toolkit.images.command import TOO_FEW_IDS, TOO_FEW_IDS_HINT


@dataclass(frozen=True)
class Known:
    """A cause that is known by its words.

    `words` is searched in single lines. `beside` must be in some line of the same start too, `without` in none.
    `certain` says how many starts must have ended so until another one is pointless; 0: it may go away by itself.
    """

    code: str
    words: re.Pattern[str]
    hint: str
    beside: re.Pattern[str] | None = None
    without: re.Pattern[str] | None = None
    certain: int = 1


def _any(*words: str) -> re.Pattern[str]:
    """A pattern that finds one of several."""
    return re.compile("|".join(words))


_OUT_OF_MEMORY = _any("CUDA out of memory", "CUDA error: out of memory", r"\bOutOfMemoryError\b", "HIP out of memory")
_BIGGER = "take a larger type in platform.instance_types (`toolkit fit RECIPE` shows which)"
_PAIR = "`toolkit check RECIPE` compares the two."
_KILLED = (
    "The kernel killed a process, as it does when the memory of the machine (not of the GPU) is used up: "
    f"{_BIGGER}; on the local platform, end other programs or lower `kv-cache-memory-bytes` in engine.args."
)

PING = re.compile(r"did not pass the ping health check")
"""SageMaker's reason whenever a container did not become healthy in time: a symptom, not a cause."""

# Lines that the Kubernetes platform writes, as `Reason: message`: reasons are the kubelet's, the scheduler's and the
# ReplicaSet controller's, messages theirs as of Kubernetes 1.36 (pkg/kubelet/images/types.go, pkg/scheduler/framework).
_KUBERNETES = (
    Known(
        "neuron-devices",
        _any(r"^Unschedulable: .*Insufficient aws\.amazon\.com/neuron"),
        "No node has so many free Neuron devices: see `kubectl describe nodes`. A node that shows none of them lacks "
        "Neuron's device plugin (chart neuron-helm-chart); a cluster with Neuron's DRA driver wants "
        "`neuron_devices: dra`. Else add nodes, or lower `tensor-parallel-size` in engine.args.",
    ),
    Known(
        "gpu-devices",
        _any(r"^Unschedulable: .*Insufficient nvidia\.com/gpu"),
        "No node has so many free GPUs: see `kubectl describe nodes`. A node that shows none of them lacks NVIDIA's "
        "device plugin. Else add nodes, or lower `tensor-parallel-size` in engine.args.",
    ),
    Known(
        # pkg/scheduler/framework/plugins/dynamicresources
        "device-claim",
        _any(
            r"^Unschedulable: .*(cannot allocate all claims|[Rr]esource ?[Cc]laim|device class \S+ does not exist)",
            r"^FailedPrepareDynamicResources: ",
        ),
        "The pod's claim on devices cannot be met: Neuron's DRA driver must run (chart neuron-helm-chart with "
        "draDriver.enabled=true, Kubernetes 1.34 and no device plugin beside it; `kubectl get deviceclasses` shows "
        "neuron.aws.com), and a node must have so many devices of one group free. Without it write "
        "`neuron_devices: device-plugin`.",
    ),
    Known(
        "volume",
        _any(r"^Unschedulable: .*([Pp]ersistent[Vv]olume|volume)", r"^Failed(Mount|AttachVolume): "),
        "A volume of the pod cannot be had: its claim must be bound (`kubectl get pvc`), the cluster needs the S3 CSI "
        "driver, and the driver's role must be allowed to read platform.kubernetes.artifacts_bucket.",
    ),
    Known(
        "no-node",
        _any(r"^Unschedulable: "),
        "No node takes the pod: platform.instance_types must be among the cluster's nodes (`kubectl get nodes -L "
        "node.kubernetes.io/instance-type`), with free CPU and memory and without taints that keep it out; a node "
        "group that scales from zero must be allowed to grow.",
    ),
    Known(
        "image-access",
        _any(r"^(ErrImagePull|ImagePullBackOff): .*(denied|[Uu]nauthorized|orbidden|no basic auth)"),
        "The node may not pull the image: its role needs ecr:GetAuthorizationToken, ecr:BatchGetImage and "
        "ecr:GetDownloadUrlForLayer, and another account's repository a policy that lets it.",
    ),
    Known(
        "image-missing",
        _any(r"^(ErrImagePull|ImagePullBackOff): .*(not found|manifest unknown|no match for)", r"^InvalidImageName: "),
        "There is no such image for the nodes' architecture in that registry: choose an engine.version that `toolkit "
        "check RECIPE` knows, or build and push yours first.",
    ),
    Known(
        "image-pull",
        _any(r"^(ErrImagePull|ImagePullBackOff|ImageInspectError|ErrImageNeverPull): "),
        "The node does not get the image: its subnet needs a way to the registry (NAT, or VPC endpoints for ECR and "
        "S3), and its disk room for it.",
        certain=0,
    ),
    Known(
        "container-config",
        _any(r"^(CreateContainerConfigError|CreateContainerError|RunContainerError): "),
        "The container cannot be made as it is asked for. A Secret that is not found must be made in the namespace, "
        "with the key `token`: kubectl create secret generic NAME --from-literal=token=...; or remove "
        "platform.hub_token_secret.",
    ),
    Known(
        "memory-limit",
        _any(r"^OOMKilled: "),
        f"The container used up the memory that it may have (the host's, not the accelerator's): {_BIGGER}, or lower "
        "engine.max_num_seqs.",
    ),
    Known(
        "startup-probe",
        _any(r"^Unhealthy: ", r"^ProgressDeadlineExceeded: "),
        "The container did not answer /ping in time: raise platform.health_check_timeout; on Trainium compile ahead "
        "(`toolkit render RECIPE --part compile`). See: toolkit logs.",
    ),
    Known(
        "namespace-quota",
        _any(r"^FailedCreate: .*exceeded quota"),
        "The namespace's ResourceQuota is used up: see `kubectl describe quota`, and ask whoever manages the cluster, "
        "or name another platform.kubernetes.namespace.",
    ),
    Known(
        "pod-refused",
        _any(r"^FailedCreate: "),
        "The cluster refuses the pod, by an admission rule or for a missing ServiceAccount: its own words say which.",
    ),
)

REASONS = (
    *_KUBERNETES,
    Known(
        # FailureReason after some 30 minutes in Creating; CapacityError in jobs (DIAGNijmegen/rse-grand-challenge#2631)
        "capacity",
        _any("InsufficientInstanceCapacity", "InsufficientCapacity", "Unable to provision requested ML compute"),
        "AWS had no free instance of that type. Name further types in platform.instance_types (the next is taken where "
        "one has none), try another platform.region or a later hour, or reserve: platform.capacity_reservation.",
        certain=0,
    ),
    Known(
        # aws/amazon-sagemaker-examples#307, awsdocs/amazon-sagemaker-developer-guide#70
        "quota",
        _any("ResourceLimitExceeded", "account-level service limit", "ServiceQuotaExceeded"),
        "Your account's quota is below what the recipe asks for. Ask for more in Service Quotas (Amazon SageMaker, "
        "`<instance type> for endpoint usage`), or name a type in platform.instance_types that you have a quota for.",
    ),
    Known(
        "throttling",  # error codes of botocore's standard retry mode
        _any("ThrottlingException", "Throttling", "Rate exceeded", "TooManyRequests", "RequestLimitExceeded"),
        "AWS takes no more calls from this account for the moment: the same command carries on.",
        certain=0,
    ),
    Known(
        # CreateModel: aws/sagemaker-python-sdk#3755, philschmid/llm-sagemaker-sample#2 (one text for role and rights);
        # DescribeEndpoint: aws/sagemaker-python-sdk#2762
        "s3-access",
        _any(
            "Could not access model data at",
            "Failed to download model data",
            "Could not find model data at",
            r"s3:(GetObject|ListBucket)\b.* (denied|not authorized)",
            r"not authorized to perform: s3:",
        ),
        "The execution role must be one that SageMaker may take, and may read the weights (s3:GetObject, "
        "s3:ListBucket; kms:Decrypt where the bucket has a key); the bucket must be in the endpoint's region. Correct "
        "platform.role, or write `platform.role: create`.",
    ),
    Known(
        # bentoml/BentoML#892; TrainingHostAgent's words from astronomer/docs#1695
        "role-not-assumable",
        _any(
            "Could not assume role",
            "unable to perform: sts:AssumeRole",
            r"trust relationship.*sts:AssumeRole",
            r'sts:AssumeRole" for the service principal',
        ),
        "SageMaker may not take the execution role: its trust policy must allow sts:AssumeRole for "
        "sagemaker.amazonaws.com. Correct platform.role, or write `platform.role: create`.",
    ),
    Known(
        # aws/deep-learning-containers#759, aws/sagemaker-python-sdk#2002
        "image-access",
        _any("does not have BatchGetImage permission", r"not authorized to perform: ecr:", "no basic auth credentials"),
        "The execution role may not pull the image: allow ecr:GetAuthorizationToken, ecr:BatchGetImage and "
        "ecr:GetDownloadUrlForLayer to platform.role (and in the repository's policy, where it is another account's), "
        "or write `platform.role: create`.",
    ),
    Known(
        # aws-samples/easy-amazon-sagemaker-deployments#4, amazon-sagemaker-examples#1476
        "image-missing",
        _any(
            r"Requested image.* not found",
            "Cannot find the requested image",
            r"ECR image .* is invalid",
            "manifest unknown",
            "repository .* does not exist in the registry",
        ),
        "There is no such image in that registry and region: choose an engine.version that AWS publishes there "
        "(`toolkit check RECIPE` knows them), or build and push yours first.",
    ),
    Known(
        # IAM and KMS words of AWS's service documentation; that FailureReason has them is unverified.
        "kms-access",
        _any(r"\bkms:\w+", "KMSAccessDenied", "KMS.*(AccessDenied|access denied|not authorized)", "KMS key .*disabled"),
        "The KMS key may not be used: its key policy must allow kms:Decrypt, kms:GenerateDataKey and kms:CreateGrant "
        "to platform.role. Correct the policy, or change platform.kms_key.",
    ),
    Known(
        # EC2's error codes; that SageMaker passes them on is unverified.
        "subnets",
        _any(
            "InsufficientFreeAddressesInSubnet",
            r"[Ii]nsufficient free (IP )?addresses",
            r"not enough (free|available) (IP )?addresses",
            r"InvalidSubnetID|subnet ID .* does not exist",
            r"InvalidGroup\.NotFound|security group .* does not exist",
        ),
        "The subnets cannot take the instances: each instance needs free addresses in network.subnets, which must "
        "exist in the endpoint's region together with network.security_groups.",
    ),
    Known(
        # Words unverified: no public example of either was found.
        "download-timeout",
        _any(r"[Mm]odel data download.*(timed? ?out|time limit)", "ModelDataDownloadTimeout"),
        "The weights did not get to the instance in time: use a type with local NVMe in platform.instance_types, or "
        "smaller weights.",
    ),
    Known(
        # philschmid/llm-sagemaker-sample#12; users saw it take turns with InsufficientInstanceCapacity
        "service-failure",
        _any("Request to service failed"),
        "SageMaker failed inside itself, at times for want of capacity: run the same command again, or name further "
        "types in platform.instance_types.",
        certain=0,
    ),
    Known(
        "permissions",  # IAM's words for any action
        _any(r"is not authorized to perform: [\w:]+", r"\bAccessDenied(Exception)?\b"),
        "Ask for that action in your IAM policy; `toolkit check RECIPE --account` lists those that are missing.",
    ),
)

LOG = (
    # ---- arguments: the server has not begun
    Known(
        # model-hosting-container-standards 0.1.15 and older join the command with blanks and supervisord strips the
        # quotes of the JSON (mended in 0.1.16); same text from shells: eugr/spark-vllm-docker#163.
        "broken-json",
        _any(r"Value .* cannot be converted to <function loads"),
        "A flag with JSON reached vLLM broken. If its quotes are gone in the log, the image's supervisor took them: "
        'set `PROCESS_AUTO_RECOVERY: "false"` in engine.env, or take engine.version 0.24.0 or newer. Else correct the '
        "value in engine.args.",
    ),
    Known(
        # supervisord's own words for a % or an unknown %(name)s in a command
        "supervisor-characters",
        _any("contains names .* which cannot be expanded", "invalid interpolation syntax", "Format string .* for"),
        "The image's supervisor takes `%` for its own: keep `%`, ` ;` and ` #` out of engine.args, or put the text in "
        "a file of the model's folder (a chat template, for instance).",
    ),
    Known(
        "unknown-flag",
        _any("unrecognized arguments?: ", "Unexpected keyword argument", "is not a valid argument in the speculative_"),
        "This engine does not know that flag: correct engine.args, or raise engine.version to one that does.",
    ),
    Known(
        "flag-value",
        _any(r"error: argument --?[\w/-]+.*: "),
        "The engine refuses the value of that flag: correct it in engine.args.",
    ),
    # ---- the pair
    Known(
        "vocabulary",
        _any(r"should have the same vocabulary size", r"assert .* == self\.org_vocab_size"),
        "Target and drafter do not share a vocabulary, or a head's draft_vocab_size is not that of its lm_head: take "
        "another speculation.model. " + _PAIR,
    ),
    Known(
        "no-mask-token",
        _any(r"must have .*ptd_token_id", r"no mask token"),
        "The drafter has no mask token: set `speculation.model` to a P-EAGLE or PARD drafter, or speculation.method to "
        "what this one is (eagle3, draft-model).",
    ),
    Known(
        "no-mask-hidden",
        _any(r"mask_hidden not found in weights"),
        "The head cannot draft in parallel: set speculation.model to a P-EAGLE head, or `speculation.method: eagle3`.",
    ),
    Known(
        # Factor 1.25 up to 0.17, 1.5 from 0.18.1 (vllm-project/vllm#36684)
        "kv-groups",
        _any("All drafting layers should belong to the same kv cache group"),
        "vLLM puts the drafter's layers into different KV-cache groups of this target with mixed attention: raise "
        "engine.version (0.18.1 groups more pairs), or take a head with fewer layers as speculation.model.",
    ),
    Known(
        "eagle3-target",
        _any(
            "Model does not support EAGLE3 interface",
            r"[Ee]agle3 is only supported for",
            "Target model does not have 'embed_tokens' or 'embedding'",
        ),
        "This engine cannot take hidden states from this target: raise engine.version, or use `draft-model` as "
        "speculation.method.",
    ),
    Known(
        # vLLM 0.24 and newer; up to 0.23 the V2 runner drafted one after the other without a word (vllm#39337).
        "v2-runner",
        _any(r"Model Runner V2 (does not yet support: .*parallel drafting|requires Triton)"),
        "vLLM's V2 runner does not draft in parallel: remove VLLM_USE_V2_MODEL_RUNNER from engine.env, or set it to 0.",
    ),
    Known(
        "token-budget",
        _any(
            r"does not allow any tokens to be scheduled",
            "does not have enough slots to schedule a token",
            r"max_num_batched_tokens \(\d+\) .*(smaller|less) than",
        ),
        "The draft slots of all requests take up the whole step: raise engine.max_num_batched_tokens, or lower "
        "engine.max_num_seqs or speculation.num_speculative_tokens.",
    ),
    Known(
        "no-speculation",
        _any(r"per-request-spec-decode-metrics requires speculative decoding to be enabled"),
        "vLLM was to measure speculation and has none: the speculative configuration did not reach it. Remove "
        "`speculative-config` and `per-request-spec-decode-metrics` from engine.args; the toolkit sets both.",
    ),
    Known(
        "tensor-parallel",
        _any(r"must be divisible by tensor parallel size", r"World size \(\d+\) is larger than the number of"),
        "The model cannot be shared like that: set `tensor-parallel-size` in engine.args to a number that divides its "
        "attention heads and that the type in platform.instance_types has accelerators for.",
    ),
    Known(
        "hidden-size",
        _any(
            r"mat1 and mat2 shapes cannot be multiplied",
            r"The size of tensor a \(\d+\) must match",
            r"The expanded size of the tensor",
            r"size mismatch",
            r"Attempted to load weight \(",
            r"Tried to load weights of size",
            r"DFlash drafter expects \d+ concatenated",
            r"assert param_data\.shape == loaded_weight\.shape",
        ),
        "A tensor has another shape than the models want: most often the drafter is another target's. Set "
        "speculation.model to a drafter of this very target. " + _PAIR,
    ),
    Known(
        "tensors",
        _any(
            r"There is no module or parameter named",
            r"Following weights were not initialized from checkpoint",
            r"Cannot find any model weights with",
            r"KeyError: '[\w.]+\.(weight|bias)\w*'",
        ),
        "The checkpoint's tensors are not those that the model wants: convert a head of another tool with `toolkit "
        "convert HEAD`, or correct speculation.model or target.model.",
    ),
    Known(
        "architecture",
        _any(
            r"Model architectures \[.*\] (are not supported|failed to be inspected)",
            "does not recognize this architecture",
            "is not supported in-tree anymore",
        ),
        "This engine does not know the model: raise engine.version; a head of another tool may only need another name "
        "(`toolkit convert HEAD`).",
    ),
    Known(
        "max-model-len",
        _any(r"max_model_len .* is greater than"),
        "Lower engine.max_model_len to what the models were made for.",
    ),
    # ---- memory
    Known(
        "gpu-memory-weights",
        _OUT_OF_MEMORY,
        f"The weights do not fit into GPU memory: {_BIGGER}, share them among more accelerators "
        "(`tensor-parallel-size` in engine.args), or take quantized weights as target.model.",
        beside=_any(r"\bin (load_model|load_weights|create_weights|initialize_model)\b", "not enough GPU memory"),
    ),
    Known(
        # Measuring the graphs is a part of determine_available_memory since 0.19, so this stands before the next.
        "gpu-memory-graphs",
        _OUT_OF_MEMORY,
        "CUDA graphs took the rest of the GPU memory: lower `max-cudagraph-capture-size` or `gpu-memory-utilization` "
        "in engine.args, or engine.max_num_seqs; `enforce-eager: true` does without graphs, and is slower.",
        beside=_any(r"\bin (capture_model|_capture_cudagraphs|capture_end|profile_cudagraph_memory)\b"),
    ),
    Known(
        "gpu-memory-step",
        _OUT_OF_MEMORY,
        "One step of the engine takes more GPU memory than the weights leave: lower engine.max_num_batched_tokens, "
        f"then engine.max_num_seqs (logits of K + 1 tokens for each), or {_BIGGER}.",
        beside=_any(
            r"\bin (profile_run|_dummy_run|_dummy_sampler_run|determine_available_memory)\b",
            r"occurred when warming up (sampler|pooler)",
        ),
    ),
    Known(
        "kv-cache-memory",
        _any(
            "No available memory for the cache blocks",
            "is larger than the available KV cache",
            "Cannot auto-fit max_model_len",
        ),
        "Weights and workspace leave too little for the KV cache: lower engine.max_model_len, store it in 8 bits "
        f"(`kv-cache-dtype: fp8` in engine.args), or {_BIGGER}; on the CPU, raise `kv-cache-memory-bytes`.",
    ),
    Known(
        "gpu-memory-taken",
        _any(r"Free memory on device .* is less than"),
        "Something else holds GPU memory, or the engine asks for too large a share: lower `gpu-memory-utilization` in "
        "engine.args.",
        certain=2,  # the processes of the start before may still be ending
    ),
    Known(
        "gpu-memory",
        _OUT_OF_MEMORY,
        "Not enough GPU memory: lower engine.max_num_seqs, engine.max_num_batched_tokens or `gpu-memory-utilization` "
        f"in engine.args, or {_BIGGER}.",
    ),
    Known(
        "host-memory",
        _any(
            r"Available memory on node .* is less than",
            r"\bMemoryError\b",
            r"DefaultCPUAllocator: (can't|not enough)",
            r"Cannot allocate memory",
        ),
        "Not enough memory of the machine: lower `kv-cache-memory-bytes` in engine.args or engine.max_num_seqs, or "
        f"{_BIGGER}.",
    ),
    # ---- the machine
    Known(
        # PyTorch's and the CUDA runtime's words; on SageMaker a wrong driver often leaves no log at all
        # (aws/deep-learning-containers#4990 and #6187, aws/sagemaker-python-sdk#6281).
        "cuda-driver",
        _any(
            r"NVIDIA driver on your system is too old",
            r"CUDA driver version is insufficient for CUDA runtime version",
            r"Error 803: system has unsupported display driver",
            r"unsatisfied condition: (cuda|driver)",
            r"was detected and compatibility mode is UNAVAILABLE",
            r"CUDA error: the provided PTX was compiled with an unsupported toolchain",
        ),
        "The image's CUDA is newer than the instance's driver. The driver comes with InferenceAmiVersion, which the "
        "toolkit sets by the image: take an engine.version whose image has an older CUDA, or another type in "
        "platform.instance_types (CUDA 13 needs al2023-ami-sagemaker-inference-gpu-4-1).",
    ),
    Known(
        "gpu-architecture",
        _any(r"no kernel image is available for execution on the device", r"not compatible with the current PyTorch"),
        "The image has no code for this GPU: raise engine.version, or take another type in platform.instance_types.",
    ),
    Known(
        "no-gpu",
        _any(
            r"Failed to infer device type",
            r"No CUDA GPUs are available",
            r"Found no NVIDIA driver on your system",
            r"libcuda\.so\.1: cannot open shared object file",
        ),
        "The container sees no GPU: platform.instance_types names a type without one, or its driver does not fit the "
        "image (then another engine.version).",
    ),
    Known(
        "nccl",
        _any(r"NCCL error", r"ncclUnhandledCudaError|ncclSystemError|ncclInternalError|ncclRemoteError"),
        "The GPUs do not reach each other. Set `NCCL_DEBUG: INFO` in engine.env to see why; "
        "`disable-custom-all-reduce` in engine.args helps on types without NVLink, and so does a type with one larger "
        "GPU in platform.instance_types.",
        certain=2,
    ),
    Known(
        # Documented wording: aws-neuron-sdk's runtime troubleshooting, aws-neuron/aws-neuron-sdk#655 and #415
        "neuron-driver",
        _any(
            r"Neuron Runtime .*is not compatible with the installed aws-neuron",
            r"upgrade to latest aws-neuron",
            r"Unable to (read compatible|determine Neuron) Driver",
            r"NEFF version: .* are not supported",
            r"NRT:nrt_init .*(not compatible|unsupported)",
        ),
        "The image's Neuron runtime and the instance's driver do not fit: take an engine.version of the Neuron SDK "
        "that the AMI's driver belongs to, or serve on EKS, where you choose the driver.",
    ),
    Known(
        # aws-neuron/aws-neuron-sdk#1369 (status 70, now and then); names of the time limits from vllm-neuron's docs.
        # The words of a compilation that ran out of time are unverified.
        "neuron-compile",
        _any(
            r"neuronx-cc compilation failed",
            r"[Nn]euron.*[Cc]ompil\w+.*(timed? ?out|[Tt]imeout)",
            r"[Cc]ompil\w+.*(timed? ?out|[Tt]imeout).*[Nn]euron",
        ),
        "Compiling for Neuron failed or took too long; SageMaker gives a start at most an hour. Compile ahead and ship "
        "the artifacts with the model, or raise VLLM_NEURON_COMPILATION_TIMEOUT in engine.env and "
        "platform.health_check_timeout.",
        certain=2,
    ),
    Known(
        "disk-full",
        _any("No space left on device", "ENOSPC"),
        "The disk is full: take a type with local NVMe or a larger volume in platform.instance_types; /dev/shm full "
        "means too little shared memory for the workers. On the local platform, make room.",
    ),
    # ---- models from the hub, weights from S3
    Known(
        "hub-gated",
        _any(
            "GatedRepoError",
            "Cannot access gated repo",
            "trying to access a gated repo",
            "is a gated repository",
            r"403 Forbidden: ",
            r"Access to model .* is restricted",
        ),
        "The model is gated: accept its licence on the hub with your account, and write `platform.weights: s3`, so "
        "that it is staged with your own token (HF_TOKEN where the toolkit runs); a token does not belong in "
        "engine.env.",
    ),
    Known(
        "hub-missing",
        _any(
            "RepositoryNotFoundError|Repository Not Found for url",
            "RevisionNotFoundError|Revision Not Found for url",
            "is not a valid git identifier",
            "is not a valid model identifier",
            "EntryNotFoundError: 404|Entry Not Found for url",
        ),
        "The hub has no such model or revision (a private one looks the same): correct target.model, speculation.model "
        "or their revision; `platform.weights: s3` stages a private one with your own token.",
    ),
    Known(
        "hub-unreachable",
        _any(
            r"LocalEntryNotFoundError|OfflineModeIsEnabled|outgoing traffic has been disabled",
            r"couldn't connect to 'https?://",
            r"Temporary failure in name resolution|Name or service not known|Failed to resolve",
            r"Network is unreachable|NewConnectionError|ConnectTimeout",
        ),
        "The container reached no hub: write `platform.weights: s3`, so that it needs none, or let it out: no "
        "network.isolation, a NAT route for network.subnets, no HF_HUB_OFFLINE in engine.env.",
        certain=2,
    ),
    Known(
        "s3-access",
        _any(r"when calling the (GetObject|HeadObject|ListObjectsV2) operation", r"botocore.*NoCredentialsError"),
        "The container may not read those weights from S3: allow s3:GetObject and s3:ListBucket to platform.role, or "
        "write `platform.weights: s3` and let SageMaker bring them.",
    ),
    # ---- the container engine, which writes before the container does
    Known(
        # podman 4.3 with netavark 1.4; newer ones name the program (containers/netavark#740); older ones with CNI:
        # containers/podman#4972
        "no-iptables",
        _any(
            r"netavark: (.*\b(ip6?tables|nft)\b.*: )?No such file or directory \(os error 2\)",
            "failed to locate iptables",
        ),
        "podman finds no program to forward the container's port with: install the package iptables (newer podman: "
        "nftables), run podman as an ordinary user, or write `run: process`.",
    ),
    Known("no-subuids", TOO_FEW_IDS, TOO_FEW_IDS_HINT),
    # ---- the server
    Known(
        "port-taken",
        _any("Address already in use"),
        "Another process holds the container's port. On the local platform, run the same command again; on AWS, remove "
        "`port` from engine.args.",
        certain=3,
    ),
    Known(
        "no-engine",
        _any(r"No module named '?vllm\b", r"exec.*: \"?serve\"?: executable file not found"),
        "The container has no vLLM to start. On the local platform: pip install 'toolkit[local]'; else take an image "
        "that `toolkit check RECIPE` knows.",
    ),
    Known(
        # -9 is SIGKILL, which nobody but the kernel sends there.
        "killed",
        _any(
            r"died unexpectedly \(exit code: -9\)",
            r"Failed core proc\(s\): \{[^}]*-9",
            r"terminated by SIGKILL",
            r"Out of memory: Killed process",
        ),
        _KILLED,
        certain=2,
    ),
    Known(
        # Seen with vLLM 0.32.0: a worker that is killed at its start leaves no word, only its parent's complaint.
        "killed",
        _any(r"WorkerProc initialization failed due to an exception in a background process"),
        _KILLED,
        without=_any("WorkerProc failed to start"),
        certain=2,
    ),
    Known(
        "killed",
        _any(r"Engine core initialization failed"),
        _KILLED,
        without=_any("EngineCore (failed to start|encountered a fatal error)"),
        certain=2,
    ),
    Known(
        "engine-died",
        _any(r"Engine core initialization failed", r"EngineCore (failed to start|encountered a fatal error)"),
        "vLLM's engine died of an error that the toolkit does not know. Look for it in vLLM's issues, or try another "
        "engine.version; `toolkit check RECIPE` may know more.",
        certain=2,
    ),
)  # fmt: skip
