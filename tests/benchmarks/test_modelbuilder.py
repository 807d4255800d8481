"""The toolkit and the SageMaker SDK's ModelBuilder start the same endpoint: API calls, and seconds of a whole process.

Both are given an image, model data in S3, an execution role and an instance type, both talk to the same stand-in on
loopback, in turn, and neither waits for the endpoint. ModelBuilder, with the fewest arguments that do it, looks at the
role, makes model, configuration and endpoint, and describes two of them. The toolkit loads and checks a recipe with its
lock, looks whether the endpoint is there, asks who it is and for the image's digest, claims the endpoint in its bucket,
makes model, configuration and endpoint, and releases its claim. Alarms and dashboard are off: the SDK has none. The
toolkit's bucket is there, as after any deployment; the very first in an account and region, which makes it, is a third
side.

The SDK lives in a virtual environment of its own under ~/.cache, which is made once (1 GB). Its telemetry is off, and
what it would send elsewhere than to loopback is refused. Prints, asserts nothing about time.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
import venv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pairs import HUB_RECIPE, write_hub_pair
from standin import ACCOUNT, Call, StandIn
from standin_user import IMAGE, User

RUNS = 5
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "toolkit-benchmarks"
SDK = "sagemaker>=3,<4"
TARGET, DRAFTER = "s3://weights-us-west-2/target/", "s3://weights-us-west-2/target/drafter/"
BUCKET = f"toolkit-{ACCOUNT}-us-west-2"
WRITES = ("Create", "Put", "Delete", "Update", "Add")
NO_TELEMETRY = "SchemaVersion: '1.0'\nSageMaker: {PythonSDK: {Modules: {TelemetryOptOut: true}}}\n"
THEIRS = """
import sys
from sagemaker.serve import ModelBuilder
image, role, uri = sys.argv[1:]
source = {"S3DataSource": {"S3Uri": uri, "S3DataType": "S3Prefix", "CompressionType": "None"}}
builder = ModelBuilder(image_uri=image, s3_model_data_url=source, role_arn=role, instance_type="ml.g6.xlarge")
builder.build(model_name="hub")
builder.deploy(endpoint_name="hub", initial_instance_count=1, wait=False)
"""
OURS = """
import sys, toolkit
toolkit.deploy(sys.argv[1], wait=False)
"""


@dataclass
class Side:
    """One of them: what is run, the calls that it made, and its wall times in seconds."""

    command: Sequence[str | Path]
    environment: Mapping[str, str]
    is_first_in_account: bool = False
    calls: list[Call] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)


@pytest.fixture(scope="module")
def sdk() -> Path:
    """The Python of a virtual environment that has the newest SDK."""
    home = CACHE / "sagemaker-sdk"
    python, installed = home / "bin" / "python", home / "installed"
    if not installed.is_file():
        venv.create(home, clear=True, with_pip=True)
        pip = subprocess.run([python, "-m", "pip", "install", "-q", SDK], capture_output=True, text=True)
        if pip.returncode:
            pytest.skip(f"pip cannot install {SDK}: {pip.stderr.strip().splitlines()[-1]}")
        installed.touch()
    return python


@pytest.fixture
def standin() -> Iterator[StandIn]:
    with StandIn() as standin:
        yield standin


@pytest.mark.timeout(1800)
def test_the_same_endpoint_by_both(
    sdk: Path, standin: StandIn, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    role = User(standin).role
    recipe, environment = _recipe(tmp_path, role), _environment(standin, tmp_path)
    sides = {
        "toolkit": Side([sys.executable, "-c", OURS, recipe], environment),
        "very first": Side([sys.executable, "-c", OURS, recipe], environment, is_first_in_account=True),
        "ModelBuilder": Side([sdk, "-c", THEIRS, IMAGE, role, TARGET], environment),
    }
    for run in range(RUNS + 1):
        for name in sorted(sides, reverse=run % 2 == 0):
            _run(sides[name], standin, is_counted=run > 0)  # the first warms the disk cache
    with capsys.disabled():
        _report(sides, _version(sdk))


def _recipe(root: Path, role: str) -> Path:
    text = HUB_RECIPE.replace("platform: {", f"platform: {{role: {role}, ")
    text = text.replace("org/target", TARGET).replace("org/drafter", DRAFTER)
    text += "observability: {alarms: false, dashboard: false}\n"
    target, drafter = ({"model": uri, "revision": ""} for uri in (TARGET, DRAFTER))
    return write_hub_pair(root, text, target=target, drafter=drafter)


def _environment(standin: StandIn, root: Path) -> dict[str, str]:
    config = root / "sagemaker.yaml"
    config.write_text(NO_TELEMETRY)
    nowhere = "http://127.0.0.1:9"
    return {
        **os.environ,
        **standin.environment(),
        "SAGEMAKER_ADMIN_CONFIG_OVERRIDE": str(config),
        "SAGEMAKER_USER_CONFIG_OVERRIDE": str(config),
        "HTTP_PROXY": nowhere,
        "HTTPS_PROXY": nowhere,
        "NO_PROXY": "127.0.0.1",
    }


def _run(side: Side, standin: StandIn, is_counted: bool) -> None:
    standin.reset()
    s3: Any = User(standin).session.client("s3")
    s3.put_object(Bucket="weights-us-west-2", Key="target/drafter/config.json", Body=b"{}")
    if not side.is_first_in_account:
        s3.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    standin.calls.clear()
    started = time.perf_counter()
    done = subprocess.run(side.command, env=side.environment, capture_output=True, text=True)
    seconds = time.perf_counter() - started
    assert done.returncode == 0, done.stderr
    assert [str(call) for call in standin.calls].count("sagemaker:CreateEndpoint") == 1
    if is_counted:
        side.seconds.append(seconds)
        side.calls = list(standin.calls)


def _version(python: Path) -> str:
    command = [str(python), "-c", "from importlib.metadata import version; print(version('sagemaker'))"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _report(sides: Mapping[str, Side], version: str) -> None:
    print(f"\none endpoint on the stand-in, without waiting; SageMaker SDK {version}; {RUNS} runs of each, in turn")
    for name, side in sides.items():
        writes = sum(call.operation.startswith(WRITES) for call in side.calls)
        print(
            f"{name:13} {len(side.calls):3} API calls ({writes} of them change something), "
            f"{statistics.median(side.seconds):5.2f} s ({min(side.seconds):.2f} to {max(side.seconds):.2f})"
        )
    ours, theirs = sides["toolkit"], sides["ModelBuilder"]
    time_ratio = statistics.median(ours.seconds) / statistics.median(theirs.seconds)
    call_ratio = len(ours.calls) / len(theirs.calls)
    print(f"the toolkit takes {time_ratio:.2f} of ModelBuilder's time, and {call_ratio:.1f} times its API calls")
    for name, side in sides.items():
        print(f"{name}: {', '.join(map(str, side.calls))}")
