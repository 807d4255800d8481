"""Stage weights by a job in the account: a build of CodeBuild that runs the toolkit's own staging, next to S3.

    here ── toolkit, request, pinned packages, as a zip in S3 ──> CodeBuild ── staging.stage_weights ──> S3
         <── lines of its log ──

The request names a secret, never a token: the job's role reads it. A project has the rights that its recipes need
and no more, so recipes with another secret, key or bucket have another project.

A job may outlive who started it, and his leases. What it works on, `staging-jobs/WEIGHTS/PROJECT.zip`, says whose it
is: nobody sends or deletes weights beside it.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from toolkit import documents
from toolkit.apply.progress import Progress
from toolkit.errors import PlatformError
from toolkit.planning.resources import Account
from toolkit.platforms.sagemaker.aws_errors import has_code, message_of
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.codebuild_project import Project, ensure_project
from toolkit.platforms.sagemaker.codebuild_run import Builds, failed_phase, own_lines
from toolkit.platforms.sagemaker.keys import aws
from toolkit.platforms.sagemaker.rules.access import allow, s3_actions
from toolkit.platforms.sagemaker.rules.in_account import IN_ACCOUNT, has_staging_job, job_request, unreachable
from toolkit.platforms.sagemaker.rules.names import (
    STAGED_PREFIX,
    STAGING_JOBS_PREFIX,
    WEIGHTS_PREFIX,
    bucket_name,
    key_arn,
    secret_arn,
)
from toolkit.platforms.sagemaker.staging import read_mark
from toolkit.platforms.sagemaker.staging_program import FAILED
from toolkit.platforms.sagemaker.stored import object_sizes
from toolkit.recipe.content import digest
from toolkit.recipe.recipe import Recipe

if TYPE_CHECKING:
    from types_boto3_codebuild.type_defs import BuildTypeDef

_NAME = "toolkit-weights"
_DIGEST_CHARACTERS = 8
_MINUTES = 480  # 5.7 TB at the assumed rate
_REQUEST, _PINS, _COMMANDS = "request.json", "requirements.txt", "job.sh"
# In the zip: a project keeps its buildspec for good, and this fits the code beside it. Nothing of a request is in it.
_SCRIPT = f"""set -e
python -m pip install --quiet --disable-pip-version-check --no-deps --only-binary=:all: --require-hashes \\
  --target packages --requirement {_PINS}
PYTHONPATH=packages:. python -m toolkit.platforms.sagemaker.staging_program {_REQUEST}
"""
_PACKAGE = Path(__file__).parents[2]
_TEMPLATE_COMMAND = "toolkit build RECIPE --staging-template"
_SHOWN_LINES = 8
_NO_ACCESS = re.compile(r"answered 40[13]\b")
# In AWS's own words, and not in a model's name.
_DENIED = re.compile(r"AccessDenied|Access Denied|not authorized to perform")
_IS_QUOTA = has_code("AccountLimitExceededException")
_AGAIN = "Run the same command again: what S3 has of it is not sent again."


def staging_project(request: Mapping[str, Any], own_bucket: str = "") -> Project:
    """The project of jobs that read the request's secret, encrypt with its key and write to the user's own bucket."""
    secret, key, job = request.get("HubTokenSecret"), request.get("KmsKeyId"), request[IN_ACCOUNT]
    needs = digest([secret, key, own_bucket])[:_DIGEST_CHARACTERS] if secret or key or own_bucket else ""

    def statements(account: Account) -> list[dict[str, Any]]:
        bucket = f"arn:{account.partition}:s3:::{bucket_name(account)}"
        weights, marks = f"{bucket}/{WEIGHTS_PREFIX}*", f"{bucket}/{STAGED_PREFIX}*"
        # Without ListBucket S3 says of what is not there that it is denied.
        return [
            allow(s3_actions("ListObjectsV2", "ListMultipartUploads"), [bucket]),
            allow(s3_actions("GetObject", "PutObject"), [weights, marks]),
            allow(s3_actions("AbortMultipartUpload", "ListParts"), [weights]),
            *([allow(["secretsmanager:GetSecretValue"], [secret_arn(secret, account)])] if secret else []),
            *([allow(["kms:Decrypt", "kms:GenerateDataKey"], [key_arn(key, account)])] if key else []),
        ]

    return Project(
        name=f"{_NAME}-{needs}" if needs else _NAME,
        description="Copies weights from the Hugging Face hub to S3 (toolkit deploy, platform.staging)",
        buildspec=buildspec(),
        sources=STAGING_JOBS_PREFIX,
        minutes=_MINUTES,
        role_policy=_NAME,
        statements=statements,
        template_command=_TEMPLATE_COMMAND,
        role_path=f"{job.get('RolePath', '')}/",
        boundary=job.get("PermissionsBoundary"),
        tags=job.get("Tags", {}),
        by_admin=job.get("ByAdmin", False),
    )


def project_of(recipe: Recipe, account: Account) -> Project | None:
    """The project that the recipe's weights are staged in; None if this machine does it, or nobody."""
    if not has_staging_job(recipe):
        return None
    needs = {"HubTokenSecret": recipe.platform.hub_token_secret, "KmsKeyId": aws(recipe).kms_key}
    return staging_project({**needs, **job_request(recipe, None)}, account.bucket)


def buildspec() -> str:
    """What CodeBuild does, as JSON, which is YAML too: all that may change is in the zip."""
    phases = {
        "install": {"runtime-versions": {"python": "3.12"}},
        "build": {"on-failure": "ABORT", "commands": [f"bash {_COMMANDS}"]},
    }
    return json.dumps({"version": 0.2, "env": {"shell": "bash"}, "phases": phases}, indent=1)


def stage_in_account(
    clients: Clients, request: Mapping[str, Any], progress: Progress, sleep: Callable[[float], None]
) -> None:
    """Run a job that stages the weights of a request, unless all are there. Raises PlatformError, BuildError.

    Ctrl-C stops it. Whatever else ends us lets it go on, and `follow_jobs` finds it.
    """
    if _is_whole(clients, request):
        return
    if why := unreachable(clients.account.region):
        raise PlatformError(why, hint="Remove `staging` under `platform`: this machine sends the weights then.")
    project = staging_project(request, clients.account.bucket)
    ensure_project(clients, project, progress.update, sleep)
    builds = Builds(clients, project.name, progress.update, sleep)
    source = f"{_jobs_of(request['Prefix'])}{project.name}.zip"
    identity = _start(builds, source, _archive(request))
    build, lines = _follow(builds, identity, source)
    if build["buildStatus"] != "SUCCEEDED":
        raise _failure(build, lines, request, project)
    if not _is_whole(clients, request):
        raise PlatformError(f"the job {identity} ended well, but S3 lacks files of {request['Hub']}", hint=_AGAIN)


def follow_jobs(clients: Clients, bucket: str, prefix: str, progress: Progress, sleep: Callable[[float], None]) -> None:
    """Follow the jobs that still write below a prefix of weights, whoever started them, to their ends.

    How one ends does not matter: what S3 lacks then is sent.
    """
    for source in object_sizes(clients, bucket, _jobs_of(prefix)):
        builds = Builds(clients, _project_in(source), progress.update, sleep)
        if identity := builds.under_way(source):
            _follow(builds, identity, source)
        else:
            clients.s3.delete_object(Bucket=bucket, Key=source)


def stop_jobs(clients: Clients, bucket: str, prefix: str, sleep: Callable[[float], None]) -> None:
    """Stop the jobs that still write below a prefix of weights: they would bring back what is deleted."""
    for source in object_sizes(clients, bucket, _jobs_of(prefix)):
        builds = Builds(clients, _project_in(source), lambda _: None, sleep)
        if identity := builds.under_way(source):
            builds.end(identity)
        clients.s3.delete_object(Bucket=bucket, Key=source)


def _jobs_of(prefix: str) -> str:
    """Below it is what jobs work on that write below a prefix of weights."""
    return f"{STAGING_JOBS_PREFIX}{prefix.removeprefix(WEIGHTS_PREFIX)}"


def _project_in(source: str) -> str:
    return source.rpartition("/")[2].removesuffix(".zip")


def _is_whole(clients: Clients, request: Mapping[str, Any]) -> bool:
    bucket = request["Bucket"]
    return read_mark(clients, bucket, request["Mark"]).is_whole(clients, bucket, request["Prefix"])


def _follow(builds: Builds, identity: str, source: str) -> tuple[BuildTypeDef, tuple[str, ...]]:
    builds.log(f"codebuild: {identity}, which goes on if this command dies; the same command follows it again")
    return builds.follow(identity, source)


def _start(builds: Builds, source: str, archive: bytes) -> str:
    """Start the job; its id. One that is refused leaves nothing."""
    s3 = builds.clients.s3
    s3.put_object(Bucket=builds.bucket, Key=source, Body=archive)
    try:
        return builds.start(source)
    except ClientError as error:
        s3.delete_object(Bucket=builds.bucket, Key=source)
        if not _IS_QUOTA(error):
            raise
        hint = (
            "Raise it in Service Quotas (AWS CodeBuild, builds on Linux/Large), which is 0 in some new accounts; or "
            "send the weights from this machine: remove `staging` under `platform`."
        )
        raise PlatformError(f"CodeBuild takes no more builds: {message_of(error)}", hint=hint) from error


def _archive(request: Mapping[str, Any]) -> bytes:
    """What the job takes: this toolkit, its pins, the request."""
    paths = [path for path in sorted(_PACKAGE.rglob("*")) if path.suffix in (".py", ".json")]
    names = [(path, path.relative_to(_PACKAGE)) for path in paths]
    files = {f"toolkit/{name.as_posix()}": path.read_bytes() for path, name in names if name.parts[0] != "_data"}
    files[_PINS] = Path(__file__).with_name("staging-requirements.lock").read_bytes()
    files[_COMMANDS] = _SCRIPT.encode()
    files[_REQUEST] = json.dumps(request, sort_keys=True).encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def _failure(
    build: BuildTypeDef, lines: tuple[str, ...], request: Mapping[str, Any], project: Project
) -> PlatformError:
    """Why a job ended before the weights were in S3, and what to do."""
    own, status = own_lines(build, lines), build["buildStatus"]
    phase = failed_phase(build).get("phaseType", build["currentPhase"])
    what = f"the job {build['id']} that stages {request['Hub']}: {status} in {phase}"
    told = next((line.removeprefix(FAILED) for line in reversed(own) if line.startswith(FAILED)), "")
    if told:
        message, hint = _told(told)
        what = f"{what}: {message}"
    else:
        more = f" Or give the project {project.name} more minutes (timeoutInMinutes)."
        hint = _AGAIN + (more if status == "TIMED_OUT" else "")
        what = "\n  | ".join((what, *own[-_SHOWN_LINES:]))
    if _NO_ACCESS.search(what) and "HubTokenSecret" not in request:
        hint = (
            f"If the model is gated, accept its licence on https://huggingface.co/{request['Hub']}, store a token in "
            "Secrets Manager, and name that secret: `platform: {hub_token_secret: NAME}`. A job in the account does "
            "not have your own token."
        )
    elif _DENIED.search(what):
        role = build.get("serviceRole", f"the role of {project.name}").rpartition("/")[2]
        hint = f"The job runs under {role}: what it needs is in `{_TEMPLATE_COMMAND}`."
    return PlatformError(what, hint=hint)


def _told(text: str) -> tuple[str, str]:
    """Message and hint of an error, as the program writes them."""
    try:
        found = documents.decode(text)
        return str(found["message"]), str(found["hint"])
    except (documents.Unfit, KeyError, TypeError):  # cut, or another version's
        return text, _AGAIN
