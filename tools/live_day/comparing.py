"""A recording played against the tests' stand-in: where both agree, and where AWS does otherwise.

What AWS did by itself meanwhile (statuses, copies, files that its jobs wrote) is taken from the recording too.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from botocore import xform_name
from botocore.config import Config
from botocore.exceptions import ClientError

from tools.live_day.recording import BYTES, Recorded
from tools.live_day.secrets import HIDDEN

_TESTS = Path(__file__).parents[2] / "tests"
_RULES = _TESTS / "aws" / "refusals"
_READING = ("BatchCheck", "BatchGet", "Describe", "Filter", "Get", "Head", "List")
_NOT_FOUND = ("404", "NoSuchKey")
_AS_RECORDED = Config(parameter_validation=False, retries={"mode": "standard", "total_max_attempts": 1})
# What is in a registry was pushed past AWS's API.
_NOT_PLAYED = frozenset(
    f"ecr:{name}"
    for name in ("BatchDeleteImage", "BatchGetImage", "DescribeImages", "DescribeImageScanFindings", "StartImageScan")
)
_ENDPOINT = "EndpointName", "DescribeEndpoint", "EndpointStatus"
_COMPONENT = "InferenceComponentName", "DescribeInferenceComponent", "InferenceComponentStatus"
# Of what a call makes or updates: the key of its name, what describes it, and where the status stands.
_STATUS = {
    "CreateEndpoint": _ENDPOINT,
    "UpdateEndpoint": _ENDPOINT,
    "CreateInferenceComponent": _COMPONENT,
    "UpdateInferenceComponent": _COMPONENT,
    "CreateTrainingJob": ("TrainingJobName", "DescribeTrainingJob", "SecondaryStatus"),
}
_ENDS = ("InService", "Failed", "Completed", "Stopped")
_GIVEN_ANEW = ("ETag", "UploadId")


@dataclass
class Comparison:
    """`seen` are the rules that refused here what AWS refused, with the same code; `lacking` keys of answers."""

    taken: int = 0
    refused: int = 0
    seen: set[str] = field(default_factory=set)
    too_mild: list[str] = field(default_factory=list)
    too_strict: list[str] = field(default_factory=list)
    other_code: list[str] = field(default_factory=list)
    for_a_while: list[str] = field(default_factory=list)
    lacking: set[str] = field(default_factory=set)

    @property
    def agrees(self) -> bool:
        """Whether the stand-in refuses and takes what AWS refuses and takes."""
        return not (self.too_mild or self.too_strict or self.other_code)

    def lines(self) -> Iterator[str]:
        """The comparison in words."""
        yield f"{self.taken} calls were taken by both, {self.refused} refused by both"
        for title, items in (
            ("refused by AWS, taken by the stand-in", self.too_mild),
            ("taken by AWS, refused by the stand-in", self.too_strict),
            ("refused by both, with another code", self.other_code),
            ("refused by AWS for a while, then taken: not played", self.for_a_while),
            ("rules that are seen live now", sorted(self.seen)),
            ("keys of AWS's answers that the stand-in's lack", sorted(self.lacking)),
        ):
            if items:
                yield f"\n{title}:"
                yield from (f"  {item}" for item in dict.fromkeys(items))


def open_standin() -> Any:
    """The stand-in of `tests/aws`, which needs the packages of the extra `dev`."""
    sys.path[:0] = [str(_TESTS), str(_TESTS / "aws")]
    return importlib.import_module("standin").StandIn()


def compare(calls: Sequence[Recorded], standin: Any) -> Comparison:
    """Ask the stand-in, which is empty, what AWS was asked, and hold its answers against AWS's."""
    standin.account.iam.late = 0.0  # what was late on AWS is seen in the recording
    with closing(_Player(standin)) as player:
        return _compare(calls, standin, player)


def _compare(calls: Sequence[Recorded], standin: Any, player: _Player) -> Comparison:
    found = Comparison()
    world = _World(calls, standin, player.client)
    for index, call in enumerate(calls):
        if not call.status or str(call) in _NOT_PLAYED:
            continue
        if call.error and _is_taken_later(calls, index):
            found.for_a_while.append(_told(call))
            continue
        world.before(index)
        code, message, answer = player.play(call)
        if call.error and code:
            _refused_by_both(found, call, code, message)
        elif call.error:
            found.too_mild.append(_told(call))
        elif code:
            found.too_strict.append(f"{call}: {code}: {message}")
        else:
            found.taken += 1
            found.lacking.update(f"{call} {path}" for path in _lacking(call.answer, answer))
    return found


def mark(ids: Iterable[str], folder: Path = _RULES) -> list[str]:
    """Write `known: seen live` to rules that were documented only; the ids of those."""
    marked = []
    for path in sorted(folder.glob("*.yaml")):
        text = path.read_text(encoding="utf-8")
        for name in sorted(ids):
            entry = re.search(rf"^- id: {re.escape(name)}\n(  .*\n)*", text, re.MULTILINE)
            if entry and "\n  known: seen live" not in entry[0]:
                head, _, rest = re.sub(r"  known: .*\n", "", entry[0]).partition("\n")
                text = f"{text[: entry.start()]}{head}\n  known: seen live\n{rest}{text[entry.end() :]}"
                marked.append(name)
        path.write_text(text, encoding="utf-8")
    return marked


def _refused_by_both(found: Comparison, call: Recorded, code: str, message: str) -> None:
    found.refused += 1
    if code != call.error["code"]:
        found.other_code.append(f"{_told(call)}; here {code}")
        return
    for rule in importlib.import_module("standin_refusals").rules():
        if str(call) in rule.calls and (rule.code, rule.message or rule.says) == (code, message):
            found.seen.add(rule.id)


def _told(call: Recorded) -> str:
    return f"{call}: {call.error['code']}: {call.error['message']}"


def _is_reading(call: Recorded) -> bool:
    return call.operation.startswith(_READING)


def _is_taken_later(calls: Sequence[Recorded], index: int) -> bool:
    """Whether the same was taken later, though nothing had been changed since."""
    refused = calls[index]
    if _is_reading(refused):
        return False
    for later in calls[index + 1 :]:
        if not later.error and not _is_reading(later):
            return (str(later), later.request) == (str(refused), refused.request)
    return False


def _lacking(live: Any, here: Any, path: str = "") -> Iterator[str]:
    """Paths of keys that AWS answered and the stand-in did not."""
    if isinstance(live, Mapping) and isinstance(here, Mapping):
        for key, value in live.items():
            if key in here:
                yield from _lacking(value, here[key], f"{path}.{key}".lstrip("."))
            elif key != BYTES:
                yield f"{path}.{key}".lstrip(".")
    elif isinstance(live, list) and isinstance(here, list):
        for one, other in zip(live, here, strict=False):
            yield from _lacking(one, other, f"{path}[]")


class _Player:
    """Sends requests of a recording. What AWS made up, such as the id of an upload, is the stand-in's own here."""

    def __init__(self, standin: Any) -> None:
        self._standin = standin
        self._clients: dict[tuple[str, str], Any] = {}
        self._own: dict[str, str] = {}

    def play(self, call: Recorded) -> tuple[str, str, Mapping[str, Any]]:
        """Code and message of the error that the stand-in answers, both empty if it takes it, and its answer."""
        try:
            answer = getattr(self.client(call, call.service), xform_name(call.operation))(**self._filled(call.request))
        except ClientError as error:
            return error.response["Error"]["Code"], error.response["Error"].get("Message", ""), {}
        self._learn(call.answer, answer)
        return "", "", answer

    def close(self) -> None:
        """Close its connections."""
        for client in self._clients.values():
            client.close()

    def client(self, call: Recorded, service: str) -> Any:
        """A client of a service in the region of a call."""
        key = call.region, service
        if key not in self._clients:
            self._clients[key] = self._standin.session(call.region).client(service, config=_AS_RECORDED)
        return self._clients[key]

    def _filled(self, value: Any) -> Any:
        """A request as it can be sent: another body, this stand-in's ids, and nothing that was hidden."""
        if isinstance(value, Mapping):
            if BYTES in value:
                return b"{}"
            return {key: self._filled(item) for key, item in value.items() if item != HIDDEN}
        if isinstance(value, list):
            return [self._filled(item) for item in value]
        return self._own.get(value, value) if isinstance(value, str) else value

    def _learn(self, live: Mapping[str, Any], here: Mapping[str, Any]) -> None:
        for key in _GIVEN_ANEW:
            if isinstance(live.get(key), str) and isinstance(here.get(key), str):
                self._own[live[key]] = here[key]


class _World:
    """What AWS did by itself, or what was there before, by what the recording says of it."""

    def __init__(self, calls: Sequence[Recorded], standin: Any, client: Callable[[Recorded, str], Any]) -> None:
        self._calls, self._standin, self._client = calls, standin, client
        self._training = importlib.import_module("standin_training")
        self._written = {call.request.get("Key") for call in calls if not _is_reading(call)}
        registry = standin.account.registry
        registry.host, registry.has = "pushed.invalid", lambda *_: True  # whatever was pushed is there

    def before(self, index: int) -> None:
        """Bring it about that the stand-in can answer this call as AWS did."""
        call = self._calls[index]
        if not call.error and call.operation in _STATUS:
            self._script(index)
        elif not call.error and call.operation == "DescribeInferenceComponent":
            self._scale(call)
        elif not call.error and call.operation in ("GetObject", "HeadObject"):
            self._put(call, call.request["Key"])
        elif call.operation == "ListObjectsV2":
            for item in call.answer.get("Contents", []):
                self._put(call, item["Key"])

    def _script(self, index: int) -> None:
        """What is made or updated now goes as it went on AWS."""
        call = self._calls[index]
        key, described, status = _STATUS[call.operation]
        statuses, reason = self._statuses(index, key, described, status)
        if described == "DescribeTrainingJob":
            self._standin.training.script = self._training.JobScript(tuple(statuses), reason=reason)
        elif statuses:
            script = self._standin.script if key == "EndpointName" else self._standin.script_component
            script(call.request[key], statuses, reason, region=call.region)

    def _statuses(self, index: int, key: str, described: str, status: str) -> tuple[list[str], str]:
        """What was seen of it until that was over, and why it failed."""
        name, found, reason = self._calls[index].request[key], list[str](), ""
        for call in self._calls[index + 1 :]:
            if call.request.get(key) != name or call.error:
                continue
            if call.operation == described:
                found.append(call.answer[status])
                reason = call.answer.get("FailureReason", "")
                if found[-1] in _ENDS:
                    break
            elif call.operation.startswith(("Create", "Update", "Delete")):
                break
        return found, reason

    def _scale(self, call: Recorded) -> None:
        """As autoscaling did."""
        copies = call.answer.get("RuntimeConfig", {}).get("CurrentCopyCount")
        if copies is None or call.answer["InferenceComponentStatus"] != "InService":
            return  # each look at it brings the stand-in's next status
        sagemaker = self._client(call, "sagemaker")
        named = {"InferenceComponentName": call.request["InferenceComponentName"]}
        here = sagemaker.describe_inference_component(**named)
        if here["InferenceComponentStatus"] == "InService" and copies != here["RuntimeConfig"]["CurrentCopyCount"]:
            sagemaker.update_inference_component_runtime_config(**named, DesiredRuntimeConfig={"CopyCount": copies})
            self._standin.settle()

    def _put(self, call: Recorded, key: str) -> None:
        """A file of AWS's own, or of the user's: no call of the recording wrote it."""
        if key in self._written:
            return
        s3, named = self._client(call, "s3"), {"Bucket": call.request["Bucket"], "Key": key}
        try:
            s3.head_object(**named)
        except ClientError as error:
            if error.response["Error"]["Code"] in _NOT_FOUND:
                s3.put_object(**named, Body=b"{}")
