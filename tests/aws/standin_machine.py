"""A machine of CodeBuild's on this one: it runs a project's buildspec, on the source and with the rights of its role.

The commands go to a real bash. What `python` is there is this Python without any package, and `pip install` puts in
place, of the packages that are installed here, exactly those that the requirements name.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from standin import StandIn
from standin_codebuild import BuildScript
from standin_iam import Rights

from toolkit.platforms.sagemaker.clients import Clients

_PIP = Path(__file__).with_name("standin_pip.py")
_PHASES = {"install": "INSTALL", "pre_build": "PRE_BUILD", "build": "BUILD", "post_build": "POST_BUILD"}


@dataclass
class Machine:
    """Runs the builds of a stand-in whenever somebody waits for them. `variables` are in the environment besides."""

    standin: StandIn
    folder: Path
    variables: Mapping[str, str]
    rights: list[dict[str, Any]] = field(default_factory=list)
    """Statements of the role of the last one."""

    def sleep(self, seconds: float) -> None:
        """Instead of time.sleep."""
        self.standin.codebuild.run("us-west-2", self._run)

    def _run(self, project: Mapping[str, Any], request: Mapping[str, Any]) -> BuildScript:
        here = self.folder / f"build-{len(list(self.folder.iterdir()))}"
        commands = here / "bin"
        commands.mkdir(parents=True)
        pip = f'[ "$1 $2" = "-m pip" ] && exec {sys.executable} {_PIP} "$@"'
        (commands / "python").write_text(f'#!/bin/sh\n{pip}\nexec {sys.executable} -S "$@"\n')
        (commands / "python").chmod(0o755)
        clients = Clients(self.standin.session())
        bucket, _, key = request["sourceLocationOverride"].partition("/")
        with zipfile.ZipFile(io.BytesIO(clients.s3.get_object(Bucket=bucket, Key=key)["Body"].read())) as archive:
            archive.extractall(here)
        role = project["serviceRole"].rpartition("/")[2]
        (name,) = clients.iam.list_role_policies(RoleName=role)["PolicyNames"]
        document: Any = clients.iam.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"]
        self.rights = list(document["Statement"])
        iam = self.standin.account.iam
        before, iam.caller = iam.caller, Rights.of(self.rights)
        try:
            return self._phases(json.loads(project["source"]["buildspec"]), here)
        finally:
            iam.caller = before

    def _phases(self, buildspec: Mapping[str, Any], here: Path) -> BuildScript:
        variables = {
            **self.standin.environment(),
            "PATH": f"{here / 'bin'}:/usr/bin:/bin",
            "HOME": str(here),
            "PYTHONDONTWRITEBYTECODE": "1",
            **self.variables,
        }
        log = ["[Container] Entering phase INSTALL"]
        for name, phase in _PHASES.items():
            for command in buildspec["phases"].get(name, {}).get("commands", ()):
                done = subprocess.run(
                    ["/bin/bash", "-c", command], cwd=here, env=variables, capture_output=True, text=True, check=False
                )
                log += [*done.stdout.splitlines(), *done.stderr.splitlines()]
                if done.returncode:
                    why = f"Error while executing command: {command}. Reason: exit status {done.returncode}"
                    return BuildScript("FAILED", phase, why, (*log, "[Container] Phase complete: FAILED"))
        return BuildScript(log=(*log, "[Container] Phase complete: SUCCEEDED"))
