"""A registry of images, through the HTTP API that all of them speak (OCI distribution)."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from email.utils import parsedate_to_datetime
from types import MappingProxyType
from typing import TypedDict, Unpack

import httpx
from pydantic import BaseModel

from toolkit import documents
from toolkit.errors import BuildError
from toolkit.images.auth import Credentials, Login, LoginRefused, anonymous
from toolkit.images.manifest import ACCEPTED, NO_REGISTRY, OTHER_CONTENT, Blob, Manifest, digest_of, media_type_of
from toolkit.images.reference import DOCKER_HUB, is_loopback
from toolkit.version import __version__

_HUB_API = "registry-1.docker.io"
_RETRIES = 5
_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_WAIT_SECONDS = 120  # whatever a registry asks for
_CONNECT_SECONDS = 15
# A registry reads the whole blob again before it confirms an upload.
_UPLOAD_SECONDS = 600
_READ_SECONDS = 60
_UNREACHED = (httpx.ConnectError, httpx.ConnectTimeout)
_NO_MOUNTS = (httpx.codes.FORBIDDEN, httpx.codes.NOT_FOUND, httpx.codes.METHOD_NOT_ALLOWED)


class _Error(BaseModel):
    code: str = ""
    message: str = ""


class _Errors(BaseModel):
    """The document that a registry answers with when it refuses."""

    errors: list[_Error]


class _Options(TypedDict, total=False):
    headers: Mapping[str, str]
    content: bytes | Iterable[bytes] | None
    scopes: tuple[str, ...]


class LoginExpired(Exception):
    """The request was rejected; the credentials have been renewed for the next one."""


class _Busy(Exception):
    """The registry may answer in `wait` seconds."""

    def __init__(self, why: str, wait: float) -> None:
        super().__init__(why)
        self.wait = wait


class Registry:
    """One registry. Threads may share it.

    `sleep` waits between two tries; `transport` carries the requests, httpx's own when None. Where `awaited` is False,
    one that cannot be reached is not tried again: from some networks none can.
    """

    def __init__(
        self,
        host: str,
        credentials: Credentials = anonymous,
        *,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
        awaited: bool = True,
    ) -> None:
        self.host = host
        api = _HUB_API if host == DOCKER_HUB else host
        self._url = httpx.URL(f"http://{api}" if is_loopback(api) else f"https://{api}")
        self._sleep, self._awaited = sleep, awaited
        with documents.making_client():
            self._client = httpx.Client(
                transport=transport,
                trust_env=not is_loopback(host),
                timeout=httpx.Timeout(_READ_SECONDS, connect=_CONNECT_SECONDS),
                # a blob is counted and resumed in the bytes it has, so nobody may pack it for the way
                headers={"User-Agent": f"toolkit/{__version__}", "Accept-Encoding": "identity"},
            )
        self._login = Login(host, credentials, self._client)

    def __enter__(self) -> Registry:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def find_manifest(self, repository: str, selector: str) -> Manifest | None:
        """The manifest of a tag or digest, None when there is no such image. Raises BuildError."""
        url = self.url(repository, f"manifests/{selector}")
        answer = self.request("GET", url, repository, headers={"Accept": ", ".join(ACCEPTED)})
        if answer.status_code == httpx.codes.NOT_FOUND:
            return None
        content_type = self.expect(answer, httpx.codes.OK).headers.get("Content-Type", "")
        manifest = Manifest(media_type_of(content_type, answer.content), answer.content)
        if selector.startswith("sha256:") and manifest.digest != selector:
            message = f"{self.host}/{repository}: requested {selector}, but got {manifest.digest}"
            raise BuildError(message, hint=OTHER_CONTENT)
        return manifest

    def put_manifest(self, repository: str, selector: str, manifest: Manifest) -> httpx.Response:
        """Make the tag name this image, or put it under its digest; the answer. Raises BuildError."""
        url = self.url(repository, f"manifests/{selector}")
        headers = {"Content-Type": manifest.media_type}
        answer = self.request("PUT", url, repository, headers=headers, content=manifest.body)
        return self.expect(answer, httpx.codes.CREATED, httpx.codes.OK)

    def has_blob(self, repository: str, digest: str) -> bool:
        answer = self.request("HEAD", self.url(repository, f"blobs/{digest}"), repository)
        if answer.status_code in (httpx.codes.NOT_FOUND, httpx.codes.METHOD_NOT_ALLOWED):
            return False  # who does not tell is sent it
        self.expect(answer, httpx.codes.OK)
        return True

    def small_blob(self, repository: str, blob: Blob) -> bytes:
        """A configuration, whole and checked. Raises BuildError."""
        if blob.size > documents.LIMITS.size:
            message = f"{self.host}/{repository}: an image configuration of {blob.size} bytes is too large"
            raise BuildError(message, hint="Use an image whose history and labels are shorter.")
        content = b"".join(self.read_blob(repository, blob))
        if digest_of(content) != blob.digest:
            message = f"{self.host}/{repository}: the content of {blob.digest} does not match its digest"
            raise BuildError(message, hint=OTHER_CONTENT)
        return content

    def read_blob(self, repository: str, blob: Blob, start: int = 0) -> Iterator[bytes]:
        """The bytes from `start` on, in chunks. Resumes after a lost connection. Raises BuildError."""
        position, failures, refusals = start, 0, 0
        while position < blob.size:
            why, wait = "it ended early", 0.0
            try:
                for piece in self._stream(repository, blob, position):
                    failures = refusals = 0
                    position += len(piece)
                    yield piece
            except LoginExpired:
                refusals += 1
                self.check_refusals(refusals, repository)
                continue
            except _Busy as error:
                why, wait = str(error), error.wait
            except httpx.RequestError as error:
                why = repr(error)
            if position < blob.size:
                failures += 1
                what = f"{self.host}/{repository}: {blob.digest}"
                self.pause(failures, f"cannot read {what} beyond byte {position}: {why}", wait)

    def mount(self, repository: str, digest: str, origin: str) -> str | None:
        """Mount a blob from another repository of this registry. Returns None if done, else the upload URL.

        Registries say no in this way: not allowed to, or not possible; or with an error, or with a login for one of
        the two repositories only. Raises BuildError.
        """
        url = self.url(repository, "blobs/uploads/").copy_merge_params({"mount": digest, "from": origin})
        scopes = (f"repository:{repository}:pull,push", f"repository:{origin}:pull")
        try:
            answer = self.request("POST", url, repository, scopes=scopes)
        except LoginRefused:
            return self.start_upload(repository)
        if answer.status_code == httpx.codes.CREATED:
            return None
        if answer.status_code in _NO_MOUNTS:
            return self.start_upload(repository)
        return self.location(self.expect(answer, httpx.codes.ACCEPTED))

    def start_upload(self, repository: str) -> str:
        """Where to upload a blob to. Raises BuildError."""
        answer = self.request("POST", self.url(repository, "blobs/uploads/"), repository)
        return self.location(self.expect(answer, httpx.codes.ACCEPTED))

    def url(self, repository: str, path: str) -> httpx.URL:
        return self._url.copy_with(path=f"/v2/{repository}/{path}")

    def location(self, answer: httpx.Response) -> str:
        """The URL of the answer's `Location` header, else that of the request; always https if the registry is."""
        try:
            url = answer.request.url.join(answer.headers.get("Location", ""))
        except httpx.InvalidURL as error:
            message = f"{self.host} names an address that is not one: {error}"
            raise BuildError(message, hint=NO_REGISTRY) from error
        return str(url.copy_with(scheme="https") if self._url.scheme == "https" else url)

    def request(
        self, method: str, url: httpx.URL | str, repository: str, **options: Unpack[_Options]
    ) -> httpx.Response:
        """The answer, tried again when the registry was not there or had too much to do. Raises BuildError."""
        failures = refusals = 0
        while True:
            wait = 0.0
            try:
                answer = self.exchange(method, url, repository, **options)
                if not is_passing(answer):
                    return answer
                why, wait = status_text(answer), asked_wait(answer)
            except LoginExpired:
                refusals += 1
                self.check_refusals(refusals, repository)
                continue
            except httpx.RequestError as error:
                why = repr(error)
                if isinstance(error, _UNREACHED) and not self._awaited:
                    hint = documents.connection_hint(
                        error, "Check its name, the network, and HTTPS_PROXY and NO_PROXY."
                    )
                    raise BuildError(f"{self.host} cannot be reached: {why}", hint=hint) from error
            failures += 1
            self.pause(failures, f"{self.host}/{repository}: {method} failed: {why}", wait)

    def exchange(
        self, method: str, url: httpx.URL | str, repository: str, **options: Unpack[_Options]
    ) -> httpx.Response:
        """One request and its answer. Raises LoginExpired, httpx.RequestError and BuildError."""
        return self._read_whole(self._send(method, url, repository, **options))

    def _read_whole(self, answer: httpx.Response) -> httpx.Response:
        try:
            return documents.read_whole(answer)
        except documents.Unfit as error:
            asked = f"{answer.request.method} {answer.request.url.path}"
            message = f"{self.host}: the answer to {asked} cannot be used: {error}"
            raise BuildError(message, hint=NO_REGISTRY) from error

    def expect(self, answer: httpx.Response, *statuses: int) -> httpx.Response:
        """The answer if it has one of the statuses. Raises BuildError in the registry's own words."""
        if answer.status_code in statuses:
            return answer
        message = f"{self.host} rejected {answer.request.method} {answer.request.url.path}: {status_text(answer)}"
        if answer.status_code in (401, 403):
            raise BuildError(message, hint=self._login.hint)
        raise BuildError(message, hint=self._missing() if answer.status_code == httpx.codes.NOT_FOUND else "")

    def check_refusals(self, refusals: int, repository: str) -> None:
        """Raises BuildError when credentials that were new a moment ago are refused too."""
        if refusals > 1:
            raise LoginRefused(f"{self.host} rejects the login for {repository}", hint=self._login.hint)

    def pause(self, failures: int, why: str, wait: float = 0) -> None:
        """Wait before the next try, `wait` seconds at least. Raises BuildError `why` when there were enough."""
        if failures > _RETRIES:
            raise BuildError(f"{why}; tried {failures} times", hint=self._missing())
        # Threads that failed together do not come back together.
        usual = _FIRST_PAUSE_SECONDS * 2 ** (failures - 1) * random.uniform(0.5, 1)  # noqa: S311
        self._sleep(max(usual, wait))

    def _missing(self) -> str:
        """ECR answers a push to a repository that it lacks with 404, or hangs up."""
        return "Check that the repository exists." if ".dkr.ecr." in self.host else ""

    def _stream(self, repository: str, blob: Blob, start: int) -> Iterator[bytes]:
        url = self.url(repository, f"blobs/{blob.digest}")
        answer = self._send("GET", url, repository, {"Range": f"bytes={start}-"} if start else {})
        try:
            if is_passing(answer):
                raise _Busy(f"HTTP {answer.status_code}", asked_wait(answer))
            if answer.status_code not in (httpx.codes.OK, httpx.codes.PARTIAL_CONTENT):
                self.expect(self._read_whole(answer), httpx.codes.OK)
            # who does not know ranges sends all of it
            skip = start if answer.status_code == httpx.codes.OK else 0
            missing = blob.size - start
            for piece in answer.iter_raw():
                wanted = piece[skip : skip + missing]
                skip, missing = max(0, skip - len(piece)), missing - len(wanted)
                if wanted:
                    yield wanted
                if not missing:  # whatever a registry that never ends sends behind it
                    return
        finally:
            answer.close()

    def _send(
        self,
        method: str,
        url: httpx.URL | str,
        repository: str,
        headers: Mapping[str, str] = MappingProxyType({}),
        content: bytes | Iterable[bytes] | None = None,
        scopes: tuple[str, ...] = (),
    ) -> httpx.Response:
        """The answer, its body not yet read; blobs may come from elsewhere, where our login is not sent."""
        action = "pull" if method in ("GET", "HEAD") else "pull,push"
        scopes = scopes or (f"repository:{repository}:{action}",)
        seconds = _UPLOAD_SECONDS if method in ("PATCH", "PUT") else _READ_SECONDS
        patience = httpx.Timeout(seconds, connect=_CONNECT_SECONDS)
        request = self._client.build_request(method, url, headers=headers, content=content, timeout=patience)
        login = self._login.header(scopes) if self._is_ours(request.url) else None
        if login:
            request.headers["Authorization"] = login
        if method in ("GET", "HEAD"):
            answer = documents.follow(self._client, request)
        else:
            answer = self._client.send(request, stream=True)
        if answer.status_code != httpx.codes.UNAUTHORIZED or not self._is_ours(answer.request.url):
            return answer
        self._read_whole(answer)
        self._login.renew(scopes, login, answer.headers.get("WWW-Authenticate", ""))
        raise LoginExpired

    def _is_ours(self, url: httpx.URL) -> bool:
        return (url.scheme, url.host, url.port) == (self._url.scheme, self._url.host, self._url.port)


def is_passing(answer: httpx.Response) -> bool:
    """Whether the registry may say otherwise in a moment."""
    return answer.status_code >= 500 or answer.status_code == httpx.codes.TOO_MANY_REQUESTS


def asked_wait(answer: httpx.Response) -> float:
    """The seconds of its `Retry-After`, or until the date that it names; 0 where it has none."""
    word = answer.headers.get("Retry-After", "")
    if re.fullmatch(r"[0-9]{1,9}", word):
        return min(float(word), _LONGEST_WAIT_SECONDS)
    try:
        return min(max(parsedate_to_datetime(word).timestamp() - time.time(), 0), _LONGEST_WAIT_SECONDS)
    except (ValueError, OverflowError):
        return 0.0


def status_text(answer: httpx.Response) -> str:
    """Status and the registry's own words, on one line."""
    try:
        errors = documents.parse(_Errors, answer.content).errors
        words = "; ".join(f"{error.code} {error.message}".strip() for error in errors)
    except documents.Unfit:
        words = answer.text
    return f"HTTP {answer.status_code} {' '.join(words.split())[:300]}".rstrip()
