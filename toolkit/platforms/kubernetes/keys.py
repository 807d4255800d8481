"""The keys of a recipe that Kubernetes reads: the cluster, and the pods that run there."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StrictBool, StrictInt, StrictStr, StringConstraints, field_validator, model_validator

from toolkit.recipe.assemble import Sections
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.schema import PlatformSection, ScalingSection
from toolkit.recipe.section import NonEmptyStr, PositiveInt, Section
from toolkit.recipe.training_schema import TrainingSection

# RFC 1123: labels are names of namespaces and volumes, subdomains those of most other objects.
_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
Label = Annotated[StrictStr, StringConstraints(pattern=rf"^{_LABEL}$")]
ObjectName = Annotated[StrictStr, StringConstraints(pattern=rf"^{_LABEL}(\.{_LABEL})*$", max_length=253)]
# A name of 63 characters, which may have a domain before it: node.kubernetes.io/instance-type.
_NAME = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
LabelKey = Annotated[StrictStr, StringConstraints(pattern=rf"^({_LABEL}(\.{_LABEL})*/)?{_NAME}$")]
LabelValue = Annotated[StrictStr, StringConstraints(pattern=rf"^({_NAME})?$")]
BucketName = Annotated[StrictStr, StringConstraints(pattern=r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$")]
UserId = Annotated[StrictInt, Field(ge=0, lt=2**31)]
OWN_LABELS = (
    "app.kubernetes.io/managed-by",
    "app.kubernetes.io/instance",
    "app.kubernetes.io/name",
    "app.kubernetes.io/component",
)
"""Labels by which the toolkit finds again what it has made: that it has, the endpoint, the engine, the component."""


class Toleration(Section):
    """A taint of nodes that pods tolerate."""

    key: LabelKey
    value: LabelValue | None = Field(None, description="of the taint; default: any")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(
        None, description="of the taint; default: any"
    )


class PodVolume(Section):
    """An existing object that is mounted into the engine's container: a claim, a config map or a secret."""

    name: Label
    mount_path: Annotated[StrictStr, StringConstraints(pattern=r"^/[^:]+$")]
    claim: ObjectName | None = Field(None, description="a PersistentVolumeClaim")
    config_map: ObjectName | None = Field(None, description="a ConfigMap")
    secret: ObjectName | None = Field(None, description="a Secret")
    read_only: StrictBool = Field(True, description="the container cannot write to it")

    @model_validator(mode="after")
    def _one_source(self) -> PodVolume:
        if sum(source is not None for source in (self.claim, self.config_map, self.secret)) != 1:
            raise ValueError("name exactly one of `claim`, `config_map` and `secret`")
        return self


class PodUser(Section):
    """The user that the engine's pods run as."""

    run_as_user: UserId | None = Field(None, description="default: nobody's, 65534; on Trainium root")
    run_as_group: UserId | None = Field(None, description="default: nobody's, 65534; on Trainium root's")
    fs_group: UserId | None = Field(None, description="group that owns the files of mounted volumes")


class PodSection(Section):
    """What the engine's pods need on your cluster, on top of what the toolkit sets."""

    tolerations: list[Toleration] = Field(default_factory=list, description="taints of your nodes")
    node_selector: dict[LabelKey, LabelValue] = Field(default_factory=dict, description="labels that nodes must have")
    annotations: dict[LabelKey, StrictStr] = Field(
        default_factory=dict, description="annotations of the pods, such as those of a service mesh or a log collector"
    )
    priority_class: ObjectName | None = Field(None, description="an existing PriorityClass")
    image_pull_secrets: list[ObjectName] = Field(
        default_factory=list, description="Secrets with the credentials of the image's registry"
    )
    runtime_class: ObjectName | None = Field(None, description="an existing RuntimeClass, such as nvidia")
    security_context: PodUser | None = None
    volumes: list[PodVolume] = Field(default_factory=list, description="existing objects to mount")
    min_available: PositiveInt | None = Field(
        None, description="pods that must stay when nodes are drained (a PodDisruptionBudget); default: no such rule"
    )
    update: Literal["new-first", "old-first"] = Field(
        "new-first",
        description="how an update replaces pods: `new-first` needs free accelerators for one more pod; `old-first` "
        "needs none, but an endpoint of one pod does not answer until the new one is ready",
    )
    drain_seconds: Annotated[StrictInt, Field(ge=1, le=3600)] | None = Field(
        None,
        description="seconds that open requests have to finish when a pod ends; default: the time of "
        "engine.max_model_len tokens at 20 a second, at most 555",
    )


class RoutingSection(Section):
    """A Gateway of the cluster that chooses among an endpoint's pods."""

    gateway: ObjectName = Field(description="an existing Gateway (Gateway API)")
    namespace: Label | None = Field(None, description="of the Gateway; default: the endpoint's")
    hostname: ObjectName | None = Field(
        None, description="host name of the endpoint, if several share the Gateway; default: any"
    )


class KubernetesSection(Section):
    """The cluster, what it has for Trainium, and how pods get weights."""

    context: NonEmptyStr | None = Field(None, description="context of your kubeconfig; default: the current one")
    namespace: Label = Field(
        "toolkit", description="namespace of everything that is made; it is created if it does not exist"
    )
    nodes: PositiveInt = Field(
        1,
        description="nodes that share one copy of the model, if it is too large for one node: pods are a "
        "LeaderWorkerSet, and the model is divided by engine.args (tensor-parallel-size times pipeline-parallel-size)",
    )
    neuron_devices: Literal["dra", "device-plugin"] | None = Field(
        None,
        description="how pods get Trainium chips: Neuron's DRA driver (Kubernetes 1.34), or its device plugin; "
        "default: `dra` on trn2.48xlarge, the only type it is documented for, else `device-plugin`",
    )
    neuron_driver: Annotated[StrictStr, StringConstraints(pattern=r"^[0-9]+(\.[0-9]+){3}$")] | None = Field(
        None,
        description="Neuron driver (aws-neuronx-dkms) of the nodes, such as 2.28.0.0; it is checked against the "
        "image's runtime, and with DRA pods only run on nodes that have it",
    )
    service_account_role: (
        Annotated[StrictStr, StringConstraints(pattern=r"^arn:aws[a-z-]*:iam::.+:role/.+$")] | None
    ) = Field(None, description="IAM role that pods assume (IRSA, or EKS Pod Identity)")
    pod_identity: StrictBool = Field(
        False,
        description="true: pods get service_account_role by EKS Pod Identity; `toolkit plan` says how to associate it; "
        "false: by IRSA",
    )
    artifacts_bucket: BucketName | None = Field(
        None, description="S3 bucket for what is compiled for Trainium, mounted by the S3 CSI driver"
    )
    weights_bucket: BucketName | None = Field(
        None,
        description="S3 bucket with the models, mounted by the S3 CSI driver; `toolkit plan` says what to put where",
    )
    weights_claim: ObjectName | None = Field(
        None,
        description="existing PersistentVolumeClaim with the models, each in a folder named like its hub id or like "
        "the last part of its address",
    )
    weights_cache: Literal["pod", "node"] = Field(
        "pod",
        description="where downloads from the hub are kept: `pod`, on the pod's own disk; `node`, in a folder of the "
        "node that its pods share (/var/lib/toolkit)",
    )
    prometheus: Annotated[StrictStr, StringConstraints(pattern=r"^https?://.+$")] | None = Field(
        None, description="address of the Prometheus that KEDA scales by; default: an HPA on the pods' own metric"
    )
    monitors: dict[LabelKey, LabelValue] | None = Field(
        None,
        description="labels that your Prometheus operator selects monitors by, such as {release: prometheus}: a "
        "PodMonitor and a PrometheusRule with them are made, and a dashboard for Grafana; default: only annotations on "
        "the pods",
    )
    routing: RoutingSection | None = Field(
        None,
        description="let a Gateway (Gateway API's inference extension) send each request to the pod whose prefix "
        "cache, KV cache and queue suit it best; default: the Service sends it to any pod",
    )
    pod: PodSection = Field(
        default_factory=PodSection.model_construct, description="what the engine's pods need on your cluster"
    )

    @model_validator(mode="after")
    def _one_source_of_weights(self) -> KubernetesSection:
        if self.weights_bucket and self.weights_claim:
            raise ValueError("weights come from one place: remove `weights_bucket` or `weights_claim`")
        return self

    @field_validator("monitors")
    @classmethod
    def _labels_of_the_toolkit_stay(cls, value: dict[str, str] | None) -> dict[str, str] | None:
        if taken := [key for key in OWN_LABELS if key in (value or {})]:
            raise ValueError(f"the toolkit sets {', '.join(taken)} itself, to find what it has made: remove that label")
        return value

    @model_validator(mode="after")
    def _identity_of_a_role(self) -> KubernetesSection:
        if self.pod_identity and not self.service_account_role:
            raise ValueError("`pod_identity` gives pods a role: name it in `service_account_role`")
        return self


class ClusterPlatform(PlatformSection):
    """Where in a cluster the endpoint runs."""

    kubernetes: KubernetesSection | None = Field(None, description="settings of `name: kubernetes`")


class ClusterTraining(TrainingSection):
    """The Job that trains in a cluster."""

    image: NonEmptyStr | None = Field(
        None, description="image of the job on Kubernetes, made from containers/train; SageMaker's is built"
    )


SECTIONS: Sections = {"platform": ClusterPlatform, "scaling": ScalingSection, "training": ClusterTraining}


def cluster(recipe: Recipe) -> KubernetesSection:
    return ClusterPlatform.of(recipe.platform).kubernetes or KubernetesSection()
