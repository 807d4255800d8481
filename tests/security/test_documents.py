"""Documents from outside that are broken, hostile or endless: a clear error each, never a traceback or a hang."""

from __future__ import annotations

import os
import re
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any

import boto3
import httpx
import pytest
from document_kinds import Kind, kinds
from mangling import mangled
from pairs import write_pair

from toolkit import documents
from toolkit.cli.output import exit_code
from toolkit.errors import BuildError, HubError, PlatformError, ToolkitError, UnreadableRecipe
from toolkit.images.auth import anonymous
from toolkit.images.copy import find_image
from toolkit.images.reference import parse
from toolkit.images.registry import Registry
from toolkit.loading import read
from toolkit.planning.plan import Plan
from toolkit.platforms.kubernetes.session import SESSION
from toolkit.platforms.sagemaker.answers import UnreadableAnswer
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.errors import aws_errors
from toolkit.recipe.hub import HubFiles

# `make test-exhaustive` asks for more.
INPUTS = int(os.environ.get("TOOLKIT_MANGLED_DOCUMENTS", "15"))
MOST_SECONDS = 20.0
MOST_BYTES = 200 * 1024**2
NAMES = (
    "recipe", "lock", "lock in a check", "plan", "record", "config.json", "tokenizer.json", "safetensors",
    "safetensors index", "prompts", "prompts in CSV", "prompts in JSON", "prompts in Parquet",
    "conversations", "captured conversations", "report", "catalogue update",
    "docker config", "compiled record", "compiled files' times", "container's variable", "hub", "prices and heads",
    "list of files", "package index", "OCI manifest", "OCI index", "OCI config", "OCI error", "OCI token",
    "engine's stream",
    "engine's error", "engine's metrics", "benchmark's stream", "SageMaker endpoint", "SageMaker refusal",
    "CloudWatch alarms", "CloudWatch log", "S3 listing", "IAM role", "S3 lease", "JumpStart answer", "JumpStart entry",
    "JumpStart gated entry", "SageMaker invocation", "Kubernetes deployment", "Kubernetes list", "Kubernetes objects",
    "Kubernetes pods", "Kubernetes refusal", "Kubernetes invocation",
    "kubeconfig", "head of specforge", "head of speculators", "journal", "captured requests", "log to explain",
    "dashboard", "checkpoint", "checkpoint's content", "best weights", "best weights' content", "samples",
    "samples' header", "samples' tensors", "samples' index", "hidden states", "draft vocabulary", "maps of a head",
    "config of a head to start from", "weights of a head to start from", "chat template", "config.json in training",
    "tokenizer.json in training", "tokenizer_config.json in training", "generation_config.json in training",
    "kept answers", "training job", "prepared data", "progress of a job", "machines of a job", "report of a head",
    "model card", "target's answer", "list of models",
)  # fmt: skip
REFUSALS = ("OCI error", "OCI token", "SageMaker refusal", "Kubernetes refusal")
"""What these services answer is a refusal as it is."""


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Kind]:
    return kinds(tmp_path_factory.mktemp("good"))


def refusal(kind: Kind, content: bytes) -> ToolkitError | None:
    """The error that a document comes to, None when it is used. Any other exception is a failure."""
    with TemporaryDirectory() as folder:
        try:
            kind.read(content, Path(folder))
        except ToolkitError as error:
            return error
    return None


@pytest.mark.timeout(max(300, INPUTS))
@pytest.mark.parametrize("name", NAMES)
def test_a_mangled_document_is_used_or_refused_by_its_name(table: dict[str, Kind], name: str) -> None:
    kind, before = table[name], memory()
    for seed in range(INPUTS):
        started = time.monotonic()
        error = refusal(kind, mangled(kind.good, seed))
        if error:
            assert re.search(kind.names, str(error)), seed
            assert code_of(error) == kind.code, seed
            str(error).encode()
        assert time.monotonic() - started < MOST_SECONDS, seed
    assert memory() - before < MOST_BYTES


def test_a_good_document_is_used(table: dict[str, Kind]) -> None:
    assert {name for name, kind in table.items() if refusal(kind, kind.good)} == set(REFUSALS)


def test_every_kind_is_tried(table: dict[str, Kind]) -> None:
    assert tuple(table) == NAMES


def code_of(error: ToolkitError) -> int:
    """The exit code that the command line has for it."""
    return exit_code(error)


def memory() -> int:
    """The most bytes that this process ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


JSON_BOMBS = {
    "deep": b"[" * 100_000 + b"]" * 100_000,
    "deep, and within Python's own limit": b'{"a":' * 200 + b"1" + b"}" * 200,
    "many values": b"[" + b"[]," * 300_000 + b"[]]",
    "not a number": b"[NaN]",
    "infinite": b"[-Infinity]",
    "too large to be finite": b"[1e999]",
    "many digits": b"[" + b"9" * 4000 + b"]",
    "half of a character": rb'["\ud83d"]',
    "half of a character as a key": rb'{"\udc00": 1}',
    "one key twice": b'{"a": 1, "a": 2}',
    "many keys, the last of them twice": b"{" + b",".join(b'"k%d":1' % i for i in range(50_000)) + b',"k49999":1}',
    "not UTF-8": b'["\xff"]',
    "half of a character in UTF-8": b'["\xed\xa0\xbd"]',
    "UTF-16": '["a"]'.encode("utf-16"),
    "cut short": b'["a',
    "nothing": b"",
    "large": b'"' + b"x" * documents.LIMITS.size + b'"',
}


@pytest.mark.parametrize("content", JSON_BOMBS.values(), ids=JSON_BOMBS)
def test_json_beyond_its_bounds(content: bytes) -> None:
    started = time.monotonic()
    with pytest.raises(documents.Unfit):
        documents.decode(content)
    assert time.monotonic() - started < 5


@pytest.mark.parametrize(
    "text", ['["\\ud83d\\ude00"]', '["\\\\ud83d"]', '["\\u0000"]', "[1e300, 18446744073709551615]"]
)
def test_json_within_its_bounds(text: str) -> None:
    assert isinstance(documents.decode(text), list)


ALIASES = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n"
    for old, new in zip("abcdefghijklmn", "bcdefghijklmno", strict=True)
)
YAML_BOMBS = {
    "aliases of aliases": ALIASES,
    "an alias within itself": "a: &a [*a]",
    "deep": "[" * 5000,
    "many keys": "".join(f"k{number}: 1\n" for number in range(20_000)),
    "many values": f"a: [{'x, ' * 20_000}]",
    "long": f'name: "{"x" * 10**6}"',
}


@pytest.mark.parametrize("text", YAML_BOMBS.values(), ids=YAML_BOMBS)
def test_a_recipe_beyond_its_bounds(tmp_path: Path, text: str) -> None:
    (tmp_path / "recipe.yaml").write_text(text)
    started = time.monotonic()
    with pytest.raises(UnreadableRecipe, match=r"recipe\.yaml"):
        read(tmp_path / "recipe.yaml")
    assert time.monotonic() - started < 10


def test_a_file_without_an_end_is_not_read_to_it() -> None:
    with pytest.raises(ToolkitError, match="/dev/zero is not a saved plan: it is larger than"):
        Plan.read(Path("/dev/zero"))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"[" * 2000 + b"]" * 2000, "recursion"),
        (b"# " + b"x" * 5 * 1024**2, "larger than 4194304 bytes"),
    ],
    ids=["deep", "large"],
)
def test_a_kubeconfig_beyond_its_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, why: str
) -> None:
    (tmp_path / "config").write_bytes(content)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    with pytest.raises(PlatformError, match=f"cannot use the kubeconfig: .*{why}"):
        SESSION.open("ctx/ml")


def test_a_null_byte_in_a_recipe_is_named_with_its_line(tmp_path: Path) -> None:
    recipe = write_pair(tmp_path)
    recipe.write_text(recipe.read_text().replace("model: ./target", r'model: "./a\0b"'))
    with pytest.raises(ToolkitError, match=r"recipe\.yaml:3 target\.model: a null byte is not text"):
        read(recipe)


class Endless(BaseHTTPRequestHandler):
    """Answers with a body that never ends, slowly or as fast as it can."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path.startswith("/redirects/"):
            self._head(302, {"Location": f"/redirects/{int(path[11:]) + 1}"})
        elif path == "/packed":
            self._head(200, {"Content-Encoding": "gzip"})
        else:
            self._head(200, {"Content-Type": "application/vnd.docker.distribution.manifest.v2+json"})
        self._body(0.02 if path == "/slow" else 0)

    do_POST = do_GET  # noqa: N815

    def _head(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Transfer-Encoding": "chunked"}.items():
            self.send_header(name, value)
        self.end_headers()

    def _body(self, pause: float) -> None:
        piece = b"x" if pause else b"x" * 65536
        try:
            while True:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                time.sleep(pause)
        except OSError:
            self.close_connection = True

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def endless() -> Iterator[str]:
    """Address of a server whose answers never end."""
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Endless)) as url:
        yield url


@contextmanager
def serving(server: ThreadingHTTPServer) -> Iterator[str]:
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    ("path", "limits", "words"),
    [
        ("/fast", documents.Limits(size=10**6), "larger than 1000000 bytes"),
        ("/slow", documents.Limits(seconds=0.3), "not complete after 0 seconds"),
        ("/packed", documents.LIMITS, "packed it"),
    ],
)
def test_an_answer_without_an_end(endless: str, path: str, limits: documents.Limits, words: str) -> None:
    with httpx.Client() as client, pytest.raises(documents.Unfit, match=words):
        documents.request(client, "GET", f"{endless}{path}", limits)


def test_redirects_without_an_end_whose_bodies_have_none_either(endless: str) -> None:
    with httpx.Client() as client, pytest.raises(httpx.TooManyRedirects):
        documents.request(client, "GET", f"{endless}/redirects/0")


def test_a_hub_whose_answer_has_no_end(endless: str) -> None:
    before = memory()
    with httpx.Client(base_url=endless) as client, pytest.raises(HubError, match=r"org/model@main: .* larger than"):
        HubFiles("org/model", None, client).sizes()
    assert memory() - before < MOST_BYTES


ASK_AWS: dict[str, Callable[[Clients], object]] = {
    "a description": lambda clients: clients.sagemaker.describe_endpoint(EndpointName="chat"),
    "a list": lambda clients: clients.s3.list_objects_v2(Bucket="bucket"),
    "a role": lambda clients: clients.iam.get_role(RoleName="me"),
    "the refusal of an object": lambda clients: clients.s3.get_object(Bucket="redirects", Key="1"),
}


@pytest.mark.parametrize("ask", ASK_AWS.values(), ids=ASK_AWS)
def test_an_answer_of_aws_that_has_no_end(
    endless: str, ask: Callable[[Clients], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", endless)
    clients, before = Clients(boto3.Session("AKID", "secret", region_name="us-west-2"), attempts=2), memory()
    with aws_errors("asking"), pytest.raises(UnreadableAnswer, match="larger than 16777216 bytes"):
        ask(clients)
    assert memory() - before < MOST_BYTES


def test_a_registry_whose_manifest_has_no_end(endless: str) -> None:
    host, before = endless.removeprefix("http://"), memory()
    with Registry(host, anonymous) as registry, pytest.raises(BuildError, match=f"{host}: .* larger than"):
        find_image(registry, parse(f"{host}/a:1"))
    assert memory() - before < MOST_BYTES
