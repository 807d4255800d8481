"""What CodeBuild does to make an image, and the archive that it makes it from.

The buildspec is the project's and always the same. What differs from build to build comes in variables, which the
shell never splits or reads as commands: DESTINATION, BASE_IMAGE and, if the Dockerfile asks for it, SOURCE_DATE_EPOCH;
BASE_REGISTRY and BASE_REGION for a base in an ECR of another account or region. What it pushes is `publish.staged`
beside DESTINATION: the engine's store, and so what it pushes, is CodeBuild's choice.
"""

from __future__ import annotations

import hashlib
import json
import tarfile
import zipfile
from pathlib import Path

from toolkit.images.publish import STAGED
from toolkit.images.spec import on_disk

_CONTEXT = "context.tar"
_LOGIN = 'aws ecr get-login-password --region "{region}" | docker login --username AWS --password-stdin "{host}"'
# CodeBuild's own variable: `project:id`, and the id is what the builder marks the tag with.
_PUSHED = f'"$DESTINATION{STAGED}${{CODEBUILD_BUILD_ID##*:}}"'
_EARLIEST = (1980, 1, 1, 0, 0, 0)  # that a zip can say


def buildspec() -> str:
    """The text, as JSON, which is YAML too.

    Each command stands for itself: CodeBuild ends the phase at the first that fails, and says which. What an `-e` of
    its shell would do is not documented.
    """
    phases = {
        "pre_build": [
            _LOGIN.format(region="$AWS_REGION", host="${DESTINATION%%/*}"),
            f'if [ -n "${{BASE_REGISTRY:-}}" ]; then {_LOGIN.format(region="$BASE_REGION", host="$BASE_REGISTRY")}; fi',
        ],
        # The legacy builder, which every engine has, and which adds no attestations as BuildKit does.
        "build": [
            "DOCKER_BUILDKIT=0 docker build --build-arg BASE_IMAGE ${SOURCE_DATE_EPOCH:+--build-arg SOURCE_DATE_EPOCH}"
            f" --tag {_PUSHED} - < {_CONTEXT}"
        ],
        "post_build": [f"docker push {_PUSHED}"],
    }
    # Without the word, post_build comes even after a build that failed.
    steps = {name: {"on-failure": "ABORT", "commands": commands} for name, commands in phases.items()}
    return json.dumps({"version": 0.2, "env": {"shell": "bash"}, "phases": steps}, indent=1)


def pack(context: Path, archive: Path) -> str:
    """Write a build context as the zip that CodeBuild unpacks; the digest of its content. Raises BuildError.

    A tar in it, so that modes and owners do not depend on who unpacks the zip. Nothing is compressed: what is large is
    weights, which do not get smaller.
    """
    with on_disk("pack the build context"):
        files = sorted(context.rglob("*"))
        inner = zipfile.ZipInfo(_CONTEXT, _EARLIEST)
        inner.file_size = sum(path.stat().st_size for path in files)  # from it zipfile knows whether it needs zip64
        inner.external_attr = 0o644 << 16
        with (
            zipfile.ZipFile(archive, "w") as outer,
            outer.open(inner, "w") as stream,
            tarfile.open(fileobj=stream, mode="w|") as tar,
        ):
            for path in files:
                tar.add(path, str(path.relative_to(context)), recursive=False, filter=_anonymous)
        with archive.open("rb") as packed:
            return hashlib.file_digest(packed, "sha256").hexdigest()


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mtime = 0
    return entry
