"""What the caller must be allowed to do: every action that plan, deploy, prove, logs and destroy take, and on what.

The one list of them; a test holds it against the calls that are really made. What SageMaker's execution role must be
allowed to do is another matter: kinds/role.py. ecr:BatchGetImage and ecr:DescribeRepositories are not in it:
without them images are not pinned, and the images of a destroyed endpoint are not named. Rights on KMS keys, which the
key's own policy may give too, rights that only the first build with CodeBuild takes, and rights on the model registry
say in `unless` when they are not needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from toolkit.engines.arguments import builds
from toolkit.planning.artifacts import compiles_ahead
from toolkit.planning.resources import Account
from toolkit.platforms.sagemaker.codebuild_project import PROJECT_PRINCIPAL, Project
from toolkit.platforms.sagemaker.image_project import IMAGE_PROJECT
from toolkit.platforms.sagemaker.keys import aws, aws_observability
from toolkit.platforms.sagemaker.kinds.image import repository_of
from toolkit.platforms.sagemaker.kinds.monitoring import alarm_prefix, dashboard_name
from toolkit.platforms.sagemaker.rules.access import PRINCIPAL, s3_actions
from toolkit.platforms.sagemaker.rules.arms import endpoint_name
from toolkit.platforms.sagemaker.rules.checks.account import Permission
from toolkit.platforms.sagemaker.rules.jumpstart import ids
from toolkit.platforms.sagemaker.rules.metrics import TRAINING_LOG_GROUP, log_groups
from toolkit.platforms.sagemaker.rules.names import bucket_name, compiler, key_arn, made_role_arn, secret_arn, trainer
from toolkit.platforms.sagemaker.staging_job import project_of
from toolkit.recipe.recipe import Recipe

SCALING_ROLE = "AWSServiceRoleForApplicationAutoScaling_SageMakerEndpoint"
"""The service-linked role that Application Auto Scaling changes endpoints with."""

_SCALING_PRINCIPAL = "sagemaker.application-autoscaling.amazonaws.com"
# Actions that no resource limits, or that look through all of them.
_EVERYWHERE = (
    "sagemaker:ListEndpointConfigs",
    "sagemaker:ListEndpoints",
    "sagemaker:ListInferenceComponents",
    "sagemaker:ListModels",
    "sagemaker:ListTrainingJobs",
    "sagemaker:CallWithBearerToken",
    "tag:GetResources",
    "logs:DescribeLogGroups",
    "cloudwatch:DescribeAlarms",
    "cloudwatch:GetMetricData",
    "cloudwatch:ListMetrics",
    "application-autoscaling:DescribeScalableTargets",
    "application-autoscaling:DescribeScalingPolicies",
    "application-autoscaling:ListTagsForResource",
)


def permissions(
    recipe: Recipe, account: Account, *, scaling_role_exists: bool = True, scales_now: bool = False
) -> tuple[Permission, ...]:
    """What a recipe's life takes, from plan to destroy, with and without `--baseline`.

    `account.role` is the execution role that exists. Without one it is made, if the recipe says so. With `scales_now`
    its endpoints have autoscaling, which an update removes if the recipe has none any more.
    """
    needed = [Permission(_EVERYWHERE, ("*",)), *_endpoint(recipe, account), *_storage(account), *_role(recipe, account)]
    needed += [*_logs(recipe, account), *_monitoring(recipe, account), _registry(account)]
    if builds(recipe) or recipe.training:
        needed += _images(recipe, account)
    if compiles_ahead(recipe) or recipe.training:
        needed += _training(account)
    project = project_of(recipe, account)
    if project:
        needed += [*_builds(project, account, "ListBuildsForProject"), *_project(project, account)]
    if key := aws(recipe).kms_key:
        # Uploads are encrypted with it; CreateEndpoint asks the caller for a grant (developer guide, API permissions).
        actions = ["kms:CreateGrant", "kms:Decrypt", "kms:GenerateDataKey"]
        if builds(recipe) or recipe.training:  # ECR's user guide, encryption-at-rest, of whoever makes the repository
            actions += ["kms:DescribeKey", "kms:RetireGrant"]
        needed.append(Permission(tuple(actions), (key_arn(key, account),), unless="the key's own policy allows it"))
    if names := ids(recipe):
        hub = f"arn:{account.partition}:sagemaker:{account.region}:aws"
        contents = [f"{hub}:hub-content/SageMakerPublicHub/Model/{name}/*" for name in names]
        needed.append(_allow("sagemaker", "DescribeHubContent", f"{hub}:hub/SageMakerPublicHub", *contents))
    if (secret := recipe.platform.hub_token_secret) and not project:  # a job reads it under its own role
        needed.append(_allow("secretsmanager", "GetSecretValue", secret_arn(secret, account)))
    if recipe.scaling.max_instances > recipe.scaling.min_instances:
        needed += _scaling(recipe, account, scaling_role_exists)
    elif scales_now:
        needed += _without_scaling(recipe, account)
    return tuple(needed)


def _endpoint(recipe: Recipe, account: Account) -> Iterator[Permission]:
    endpoints = _arns(account, "sagemaker", "endpoint/", *hosts(recipe))
    configs = _arns(account, "sagemaker", "endpoint-config/", *(f"{name}-*" for name in hosts(recipe)))
    models = _arns(account, "sagemaker", "model/", f"{recipe.name}-*")
    components = _arns(account, "sagemaker", "inference-component/", *_arms(recipe))
    # These two are asked for both, the endpoint and its configuration.
    yield _allow("sagemaker", "CreateEndpoint UpdateEndpoint", *endpoints, *configs)
    verbs = "DescribeEndpoint DeleteEndpoint InvokeEndpoint InvokeEndpointWithResponseStream"
    yield _allow("sagemaker", verbs, *endpoints)
    # Of a component it is asked whether an endpoint has its name.
    others = set(_arns(account, "sagemaker", "endpoint/", *_arms(recipe))) - set(endpoints)
    if others:
        yield _allow("sagemaker", "DescribeEndpoint", *sorted(others))
    yield _allow("sagemaker", "CreateEndpointConfig DescribeEndpointConfig DeleteEndpointConfig", *configs)
    yield _allow("sagemaker", "CreateModel DescribeModel DeleteModel", *models)
    named = _arns(account, "sagemaker", "inference-component/", *_names_and_hosts(recipe))
    yield _allow("sagemaker", "DescribeInferenceComponent", *named)
    if aws(recipe).inference_component:
        yield _allow("sagemaker", "UpdateInferenceComponent DeleteInferenceComponent", *components)
        # That AWS asks for the endpoint too is unverified: the request names it.
        yield _allow("sagemaker", "CreateInferenceComponent", *components, *endpoints)
    yield _allow("sagemaker", "AddTags ListTags", *endpoints, *configs, *models, *components)


def _storage(account: Account) -> Iterator[Permission]:
    bucket = f"arn:{account.partition}:s3:::{bucket_name(account)}"
    yield _s3("ListObjectsV2 ListMultipartUploads", bucket)
    if not account.bucket:  # of the user's own, nothing is changed
        yield _s3("CreateBucket DeleteBucket", bucket)
        yield _s3("PutBucketPolicy PutPublicAccessBlock PutBucketEncryption", bucket)
    yield _s3("GetObject PutObject DeleteObject", f"{bucket}/*")
    yield _s3("AbortMultipartUpload ListParts", f"{bucket}/*")


def _images(recipe: Recipe, account: Account) -> Iterator[Permission]:
    yield Permission(("ecr:GetAuthorizationToken",), ("*",))
    making = "CreateRepository PutLifecyclePolicy TagResource DescribeRepositories ListTagsForResource"
    kept = "DescribeImages ListImages BatchDeleteImage"
    pushing = "InitiateLayerUpload UploadLayerPart CompleteLayerUpload PutImage"
    reading = "BatchCheckLayerAvailability BatchGetImage GetDownloadUrlForLayer"
    ours = _arns(account, "ecr", "repository/", repository_of(recipe))
    yield _allow("ecr", f"{making} {kept} {pushing} {reading}", *ours)
    if recipe.container and recipe.container.builder == "codebuild":
        yield from _builds(IMAGE_PROJECT, account)
        yield from _project(IMAGE_PROJECT, account)


def _builds(project: Project, account: Account, more: str = "") -> Iterator[Permission]:
    yield _allow("codebuild", f"BatchGetProjects StartBuild BatchGetBuilds StopBuild {more}", project.arn(account))
    yield _allow("logs", "GetLogEvents", *_arns(account, "logs", "log-group:", f"{project.log_group}:*"))


def _project(project: Project, account: Account) -> Iterator[Permission]:
    """To make a project of CodeBuild and its role; see its `template_command`."""
    if project.by_admin:
        return
    role = project.role_arn(account)
    unless = f"the CodeBuild project {project.name} exists already ({project.template_command})"
    yield Permission(("codebuild:CreateProject",), (project.arn(account),), unless=unless)
    making: tuple[str, ...] = ("CreateRole", "TagRole", "ListRoleTags", "UpdateAssumeRolePolicy", "PutRolePolicy")
    making += ("PutRolePermissionsBoundary",) if project.boundary else ()
    yield Permission(tuple(f"iam:{verb}" for verb in making), (role,), unless=unless)
    yield Permission(("iam:PassRole",), (role,), {"iam:PassedToService": PROJECT_PRINCIPAL}, unless)


def _training(account: Account) -> Iterator[Permission]:
    """Jobs that compile or train, a colleague's of the same key among them."""
    jobs = _arns(account, "sagemaker", "training-job/", "*")
    yield _allow("sagemaker", "CreateTrainingJob DescribeTrainingJob StopTrainingJob AddTags ListTags", *jobs)
    groups = _arns(account, "logs", "log-group:", TRAINING_LOG_GROUP, f"{TRAINING_LOG_GROUP}:*")
    yield _allow("logs", "DescribeLogStreams GetLogEvents", *groups)


def _registry(account: Account) -> Permission:
    """Versions of models: `toolkit register`, and `toolkit deploy` of their ARNs."""
    groups = "CreateModelPackageGroup DescribeModelPackageGroup ListModelPackages"
    versions = "CreateModelPackage DescribeModelPackage UpdateModelPackage"
    both = (
        *_arns(account, "sagemaker", "model-package-group/", "*"),
        *_arns(account, "sagemaker", "model-package/", "*"),
    )
    return replace(_allow("sagemaker", f"{groups} {versions}", *both), unless="nothing is registered as a version")


def _role(recipe: Recipe, account: Account) -> Iterator[Permission]:
    ours = _role_arns(recipe, account, _roles(recipe))
    reading = "ListRoleTags ListRolePolicies GetRolePolicy"
    making = "GetRole CreateRole TagRole PutRolePolicy DeleteRolePolicy DeleteRole"
    if aws(recipe).permissions_boundary:
        making += " PutRolePermissionsBoundary"
    creates = aws(recipe).role == "create"
    yield _allow("iam", f"{reading} {making}" if creates else reading, *ours)
    passed = (
        ours if compiles_ahead(recipe) or recipe.training else _role_arns(recipe, account, _names_and_hosts(recipe))
    )
    if roles := (account.role,) if account.role else passed if creates else ():
        yield Permission(("iam:PassRole",), roles, {"iam:PassedToService": PRINCIPAL})


def _role_arns(recipe: Recipe, account: Account, names: Sequence[str]) -> tuple[str, ...]:
    return tuple(made_role_arn(recipe, account, name) for name in names)


def _logs(recipe: Recipe, account: Account) -> Iterator[Permission]:
    names = (f"{group}{rest}" for name in _names_and_hosts(recipe) for group in log_groups(name) for rest in ("", ":*"))
    reading = "DescribeLogStreams GetLogEvents ListTagsForResource DescribeMetricFilters"
    making = "CreateLogGroup PutRetentionPolicy TagResource PutMetricFilter DeleteMetricFilter DeleteLogGroup"
    verbs = f"{reading} {making}" if _watches(recipe) else reading
    yield _allow("logs", verbs, *_arns(account, "logs", "log-group:", *names))


def _monitoring(recipe: Recipe, account: Account) -> Iterator[Permission]:
    prefix = f"arn:{account.partition}:cloudwatch::{account.id}:dashboard"  # the same in all regions
    dashboards = (f"{prefix}/{dashboard_name(name, account.region)}" for name in _names_and_hosts(recipe))
    making = "PutDashboard DeleteDashboards TagResource" if _watches(recipe) else ""
    yield _allow("cloudwatch", f"GetDashboard {making}", *dashboards)
    making = "PutMetricAlarm DeleteAlarms TagResource" if _watches(recipe) else ""
    yield _allow("cloudwatch", f"ListTagsForResource {making}", *_alarms(recipe, account))


def _scaling(recipe: Recipe, account: Account, role_exists: bool) -> Iterator[Permission]:
    """Application Auto Scaling asks of its caller what it does itself (its guide, permissions validation)."""
    making = "RegisterScalableTarget DeregisterScalableTarget PutScalingPolicy DeleteScalingPolicy TagResource"
    yield _allow("application-autoscaling", making, "*")
    if aws(recipe).inference_component:
        components = _arns(account, "sagemaker", "inference-component/", *_arms(recipe))
        yield _allow("sagemaker", "UpdateInferenceComponentRuntimeConfig", *components)
    else:
        endpoints = _arns(account, "sagemaker", "endpoint/", *hosts(recipe))
        yield _allow("sagemaker", "UpdateEndpointWeightsAndCapacities", *endpoints)
    theirs = _arns(account, "cloudwatch", "alarm:", "TargetTracking-*")
    yield _allow("cloudwatch", "PutMetricAlarm DeleteAlarms", *theirs, *_alarms(recipe, account))
    if not role_exists:
        role = f"role/aws-service-role/{_SCALING_PRINCIPAL}/{SCALING_ROLE}"
        arn = f"arn:{account.partition}:iam::{account.id}:{role}"
        yield Permission(("iam:CreateServiceLinkedRole",), (arn,), {"iam:AWSServiceName": _SCALING_PRINCIPAL})


def _without_scaling(recipe: Recipe, account: Account) -> Iterator[Permission]:
    """To remove policies, targets and the alarms that belong to them."""
    yield _allow("application-autoscaling", "DeregisterScalableTarget DeleteScalingPolicy", "*")
    theirs = _arns(account, "cloudwatch", "alarm:", "TargetTracking-*")
    yield _allow("cloudwatch", "DeleteAlarms", *theirs, *_alarms(recipe, account))


def _arms(recipe: Recipe) -> tuple[str, str]:
    return recipe.name, f"{recipe.name}-baseline"


def hosts(recipe: Recipe) -> tuple[str, ...]:
    """The endpoints that serve the recipe and its baseline; components may share one."""
    return tuple(dict.fromkeys((endpoint_name(recipe), endpoint_name(recipe.baseline()))))


def _roles(recipe: Recipe) -> tuple[str, ...]:
    """Whose roles are made or, when all goes, looked for: these names', and those of jobs that compile or train."""
    names = _names_and_hosts(recipe)
    return tuple(dict.fromkeys((*names, *map(compiler, names), *map(trainer, names))))


def _names_and_hosts(recipe: Recipe) -> tuple[str, ...]:
    """The names in roles, alarms, dashboards and log groups: an endpoint's or an inference component's."""
    return tuple(dict.fromkeys((*hosts(recipe), *_arms(recipe))))


def _watches(recipe: Recipe) -> bool:
    return aws_observability(recipe).alarms is not False or aws_observability(recipe).dashboard is not False


def _alarms(recipe: Recipe, account: Account) -> tuple[str, ...]:
    return _arns(account, "cloudwatch", "alarm:", *(f"{alarm_prefix(name)}*" for name in _names_and_hosts(recipe)))


def _arns(account: Account, service: str, kind: str, *names: str) -> tuple[str, ...]:
    prefix = f"arn:{account.partition}:{service}:{account.region}:{account.id}"
    return tuple(f"{prefix}:{kind}{name}" for name in names)


def _allow(service: str, verbs: str, *resources: str) -> Permission:
    return Permission(tuple(f"{service}:{verb}" for verb in verbs.split()), resources)


def _s3(calls: str, resource: str) -> Permission:
    return Permission(tuple(s3_actions(*calls.split())), (resource,))
