"""A model or data set on the Hugging Face hub: its files, read in parts, at one revision."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from http import HTTPStatus
from typing import Annotated, Any, Literal

import httpx
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from toolkit import documents
from toolkit.errors import HubError
from toolkit.recipe.model_files import LARGEST_DOCUMENT

_TIMEOUT_SECONDS = 30.0
_NO_HUB = "Check that $HF_ENDPOINT is the address of a hub."
_REFUSED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


_WHOLE_FILE = documents.Limits(LARGEST_DOCUMENT, seconds=600.0)


_Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{40,64}$")]


class _LargeFile(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True)

    sha256: _Digest


class _File(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True)

    rfilename: Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]+$", max_length=1000)]
    size: Annotated[int, Field(ge=0)] | None = None
    lfs: _LargeFile | None = None
    blobId: _Digest | None = None  # noqa: N815 - the hub's name

    @property
    def digest(self) -> str:
        """SHA-256 of a large file, git's own digest of any other, with its kind; empty where the hub has neither."""
        if self.lfs:
            return f"sha256:{self.lfs.sha256}"
        return f"git:{self.blobId}" if self.blobId else ""


class _Repository(BaseModel):
    """What the hub says of a repository at a revision."""

    model_config = ConfigDict(frozen=True, strict=True)

    sha: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{40}$")]
    siblings: list[_File]


class HubFiles:
    """Files of the repository `repo` at a commit, branch or tag (default: main). Raises HubError."""

    def __init__(
        self, repo: str, revision: str | None, client: httpx.Client, kind: Literal["models", "datasets"] = "models"
    ) -> None:
        self._repo = repo
        self._kind = kind
        self._wanted = revision or "main"
        self._client = client
        self.location = f"{repo} on the hub"
        self.source = f"Hugging Face hub, {repo}"

    @property
    def revision(self) -> str:
        return self._info.sha

    @property
    def _path(self) -> str:
        return self._repo if self._kind == "models" else f"{self._kind}/{self._repo}"

    def names(self) -> Sequence[str]:
        return [file.rfilename for file in self._info.siblings]

    def sizes(self) -> Mapping[str, int]:
        return {name: size for name, size in self.file_sizes().items() if "/" not in name}

    def file_sizes(self) -> Mapping[str, int]:
        """Bytes of each file, by its path."""
        return {file.rfilename: file.size or 0 for file in self._info.siblings}

    def digests(self) -> Mapping[str, str]:
        """The hub's own digest of each file: SHA-256 of a large one, git's of any other."""
        return {file.rfilename: file.digest for file in self._info.siblings if file.digest}

    def read(self, name: str, start: int = 0, end: int | None = None) -> bytes:
        headers = {} if end is None else {"Range": f"bytes={start}-{end - 1}"}
        # A server without ranges sends the whole file.
        limits = _WHOLE_FILE if end is None else replace(_WHOLE_FILE, size=max(LARGEST_DOCUMENT, end - start))
        content = self._get(f"{self._path}/resolve/{self.revision}/{name}", limits, headers=headers).content
        return content if end is None or len(content) <= end - start else content[start:end]

    @cached_property
    def _info(self) -> _Repository:
        answer = self._get(f"api/{self._kind}/{self._repo}/revision/{self._wanted}", params={"blobs": "true"})
        try:
            return documents.parse(_Repository, answer.content)
        except documents.Unfit as error:
            message = f"{answer.url} answered with something else than a repository: {error}"
            raise HubError(message, hint=_NO_HUB) from error

    def find(self, name: str) -> httpx.Response:
        """Where a file lies: the answer to a request for its first byte, after all redirects. Only its head is read.

        Raises HubError, whose cause is httpx's.
        """
        path = f"{self._path}/resolve/{self.revision}/{name}"
        with self._hub_errors(path):
            asked = self._client.build_request("GET", path, headers={"Range": "bytes=0-0"})
            answer = documents.follow(self._client, asked)
            answer.close()
            return answer.raise_for_status()

    def _get(self, path: str, limits: documents.Limits = documents.LIMITS, **options: Any) -> httpx.Response:
        with self._hub_errors(path):
            return documents.request(self._client, "GET", path, limits, **options).raise_for_status()

    @contextmanager
    def _hub_errors(self, path: str) -> Iterator[None]:
        try:
            yield
        except httpx.HTTPStatusError as error:
            raise HubError(
                f"{self._repo}@{self._wanted}: {error.request.url} answered {error.response.status_code}",
                hint=_hint(error.response.status_code, self._path),
            ) from error
        except httpx.HTTPError as error:
            message = f"{self._repo}@{self._wanted} cannot be read from the hub: {error}"
            hint = documents.connection_hint(error, "Without a network, use a folder or the lock as it is.")
            raise HubError(message, hint=hint) from error
        except (httpx.InvalidURL, documents.Unfit) as error:
            message = f"{self._repo}@{self._wanted}: the hub's answer for {path} cannot be used: {error}"
            raise HubError(message, hint=_NO_HUB) from error


def hub_client(
    endpoint: str | None = None, token: str | None = None, timeout: float = _TIMEOUT_SECONDS
) -> httpx.Client:
    """A client with that token or the user's own, for `endpoint` (default: the hub, or $HF_ENDPOINT)."""
    from huggingface_hub import constants, get_token

    with suppress(PermissionError):  # in a home of somebody else's, which has none for us
        token = token or get_token()
    with documents.making_client():
        return httpx.Client(
            base_url=endpoint or constants.ENDPOINT,
            headers={"Authorization": f"Bearer {token}"} if token else {},  # httpx drops it for another host
            follow_redirects=True,
            timeout=timeout,
        )


def _hint(status: int, repo: str) -> str:
    if status in _REFUSED:
        return f"Accept the licence on https://huggingface.co/{repo} if it has one, and log in: hf auth login"
    if status == HTTPStatus.NOT_FOUND:
        return "Correct the name or the revision; a folder of that shape is written with a leading `./`."
    return "Try again later."
