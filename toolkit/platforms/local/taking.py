"""Take a recipe's image into the store of podman or docker: the image that a push to a registry would send.

spec ──> put together as for a push ──> pulled from us ──> localhost/toolkit/<name>:<tag>

It is pulled from an address of this machine's loopback, so podman and docker get the very layers that a push would
send, and of the base only those that they have not.
"""

from __future__ import annotations

import base64
import hmac
import secrets
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from toolkit.errors import BuildError
from toolkit.images.append import composed
from toolkit.images.base import require_runnable
from toolkit.images.buildah import BUILD_OPTIONS, access
from toolkit.images.command import Log, build_arguments, build_context, build_failure, last_words, run
from toolkit.images.copy import Part, find_image, parts_of
from toolkit.images.docker import logged_in
from toolkit.images.docker_config import engine_credentials
from toolkit.images.manifest import Manifest, as_it_is_packed
from toolkit.images.preflight import LENT
from toolkit.images.reference import Reference, is_loopback, parse
from toolkit.images.registry import Registry
from toolkit.images.spec import ImageSpec
from toolkit.platforms.local.engine import engine, holds

_ROOM = "Free disk space where images are stored (podman image prune, docker image prune)."


def take(spec: ImageSpec, image: str, log: Log, say: Log) -> None:
    """Have it under that name, unless it is there: its tag says its content. Raises PlatformError.

    What a push would send is put together in the same way and pulled. Only instructions, the user's own or those that
    the base has for builds on it, and a base that is in no registry, take a build here; that of podman has the same
    layers as the one that is pushed.
    """
    if holds(image):
        return
    program, source = engine(), parse(spec.base)
    takes_build = spec.needs_run or source.registry == "localhost" or _has_triggers(source)
    require_runnable(spec, "buildah" if takes_build else LENT, _connect, log, say)
    if takes_build:
        _build(program, spec, image, log)
        return
    with _connect(source.registry) as origin, composed(spec, origin, log, manifest_of=as_it_is_packed) as made:
        parts = [*made.own, *parts_of(made.base.parts.layers, origin, source, origin)]
        with lend(made.manifest, parts) as lent:
            _pull(program, lent, image, log)


def _has_triggers(base: Reference) -> bool:
    with _connect(base.registry) as registry:
        return bool((find_image(registry, base).config.get("config") or {}).get("OnBuild"))


def _connect(host: str) -> Registry:
    return Registry(host, engine_credentials)


def _pull(program: str, lent: Loan, image: str, log: Log) -> None:
    """Pull what is lent, and name it."""
    reference = parse(lent.reference)
    if program == "podman":
        with access(lent.credentials, reference) as options:
            ended = run([program, "pull", *options, lent.reference], log)
    else:
        with logged_in(lent.credentials, reference) as folder:
            ended = run([program, "pull", lent.reference], log, {"DOCKER_CONFIG": str(folder)})
    if lent.failure:
        raise lent.failure
    if ended.code:
        words = last_words(ended)
        raise BuildError(f"{program} cannot take the image: {words}", hint=_ROOM if "space" in words else "")
    named = run([program, "tag", lent.reference, image])
    run([program, "rmi", lent.reference])  # the name only
    if named.code:
        message = f"{program} cannot name the image {image}: {last_words(named)}"
        raise BuildError(message, hint="Deploy again: what was pulled is kept.")


def _build(program: str, spec: ImageSpec, image: str, log: Log) -> None:
    plain = ["--tls-verify=false"] if program == "podman" and is_loopback(parse(spec.base).registry) else []
    same = BUILD_OPTIONS if program == "podman" else []
    with build_context(spec) as context:
        options = [*build_arguments(spec), "--tag", image, "--file", str(context / "Dockerfile")]
        ended = run([program, "build", *plain, *same, *options, str(context)], log, {"DOCKER_BUILDKIT": "0"})
    if ended.code:
        raise build_failure(program, ended, spec.base, _ROOM)


_USER, _REPOSITORY, _POLL_SECONDS = "toolkit", "image", 0.05


class Loan:
    """Where the image can be pulled: `reference`, with `credentials`; `failure` is why a layer could not be read."""

    def __init__(self, manifest: Manifest, parts: Sequence[Part]) -> None:
        self.manifest = manifest
        self.parts = {part.blob.digest: part for part in parts}
        self.password = secrets.token_urlsafe(32)
        self.reference = ""
        self.failure: BuildError | None = None

    def credentials(self, _registry: str) -> tuple[str, str]:
        return _USER, self.password


@contextmanager
def lend(manifest: Manifest, parts: Sequence[Part]) -> Iterator[Loan]:
    """Lend the image until the block ends, on the loopback, to nobody but who has the credentials."""
    loan = Loan(manifest, parts)

    class Handler(_Handler):
        lent = loan

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        loan.reference = f"127.0.0.1:{server.server_port}/{_REPOSITORY}@{manifest.digest}"
        thread = threading.Thread(target=server.serve_forever, args=(_POLL_SECONDS,), daemon=True)
        thread.start()
        try:
            yield loan
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    """What of the registry's API a pull takes."""

    protocol_version = "HTTP/1.1"
    lent: Loan

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, *, with_body: bool) -> None:
        login = base64.b64encode(f"{_USER}:{self.lent.password}".encode()).decode()
        if not hmac.compare_digest(self.headers.get("Authorization", "").encode(), f"Basic {login}".encode()):
            self._begin(HTTPStatus.UNAUTHORIZED, 0, ("WWW-Authenticate", 'Basic realm="toolkit"'))
            return
        manifest, name = self.lent.manifest, self.path.rpartition("/")[2]
        if self.path == "/v2/":
            self._begin(HTTPStatus.OK, 0)
        elif name == manifest.digest:
            self._begin(HTTPStatus.OK, len(manifest.body), ("Content-Type", manifest.media_type))
            self.wfile.write(manifest.body if with_body else b"")
        elif part := self.lent.parts.get(name):
            self._begin(HTTPStatus.OK, part.blob.size, ("Content-Type", "application/octet-stream"))
            if with_body:
                self._send(part)
        else:
            self._begin(HTTPStatus.NOT_FOUND, 0)

    def _begin(self, status: HTTPStatus, size: int, *headers: tuple[str, str]) -> None:
        self.send_response(status)
        for name, value in (("Content-Length", str(size)), *headers):
            self.send_header(name, value)
        self.end_headers()

    def _send(self, part: Part) -> None:
        try:
            for piece in part.read(0):
                self.wfile.write(piece)
        except BuildError as error:
            self.lent.failure = error
            self.close_connection = True
        except ConnectionError:  # who asked has what he wanted, or has ended
            self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Say nothing."""
