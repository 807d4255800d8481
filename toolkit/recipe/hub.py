"""A model on the Hugging Face hub: its files, read in parts, at one revision."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from http import HTTPStatus
from typing import Any

import httpx

from toolkit.errors import UnreadableModel

_TIMEOUT_SECONDS = 30.0
_REFUSED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


class HubFiles:
    """Files of the repository `repo` at a commit, branch or tag (default: main). Raises UnreadableModel."""

    def __init__(self, repo: str, revision: str | None, client: httpx.Client) -> None:
        self._repo = repo
        self._wanted = revision or "main"
        self._client = client
        self.location = f"{repo} on the hub"
        self.source = f"Hugging Face hub, {repo}"

    @property
    def revision(self) -> str:
        """The commit that the wanted revision means now."""
        return str(self._info["sha"])

    def sizes(self) -> Mapping[str, int]:
        """Bytes of each file on the top level."""
        files = {file["rfilename"]: int(file.get("size") or 0) for file in self._info["siblings"]}
        return {name: size for name, size in files.items() if "/" not in name}

    def digests(self) -> Mapping[str, str]:
        """The hub's own digest of each file: SHA-256 of a large one, git's of any other."""
        return {file["rfilename"]: digest for file in self._info["siblings"] if (digest := _digest(file))}

    def read(self, name: str, start: int = 0, end: int | None = None) -> bytes:
        """Bytes `start` to before `end` of a file, by a range request."""
        headers = {} if end is None else {"Range": f"bytes={start}-{end - 1}"}
        content = self._get(f"{self._repo}/resolve/{self.revision}/{name}", headers=headers).content
        if end is None:
            return content
        # A server without ranges sends the whole file.
        return content if len(content) <= end - start else content[start:end]

    @cached_property
    def _info(self) -> dict[str, Any]:
        answer = self._get(f"api/models/{self._repo}/revision/{self._wanted}", params={"blobs": "true"})
        try:
            info: dict[str, Any] = answer.json()
            if not isinstance(info["sha"], str) or not isinstance(info["siblings"], list):
                raise TypeError("sha or siblings")
        except (ValueError, KeyError, TypeError) as error:
            raise UnreadableModel(f"{answer.url} answered with something else than a model") from error
        return info

    def _get(self, path: str, **options: Any) -> httpx.Response:
        try:
            answer = self._client.get(path, **options)
            answer.raise_for_status()
        except httpx.HTTPStatusError as error:
            raise UnreadableModel(
                f"{self._repo}@{self._wanted}: {error.request.url} answered {error.response.status_code}",
                hint=_hint(error.response.status_code, self._repo),
            ) from error
        except httpx.HTTPError as error:
            message = f"{self._repo}@{self._wanted} cannot be read from the hub: {error}"
            raise UnreadableModel(message, hint="Without a network, use a folder or the lock as it is.") from error
        return answer


def hub_client(endpoint: str | None = None, token: str | None = None) -> httpx.Client:
    """A client with that token or the user's own, for `endpoint` (default: the hub, or $HF_ENDPOINT)."""
    from huggingface_hub import constants, get_token

    token = token or get_token()
    return httpx.Client(
        base_url=endpoint or constants.ENDPOINT,
        headers={"Authorization": f"Bearer {token}"} if token else {},  # httpx drops it when another host takes over
        follow_redirects=True,
        timeout=_TIMEOUT_SECONDS,
    )


def _digest(file: Mapping[str, Any]) -> str:
    if sha256 := (file.get("lfs") or {}).get("sha256"):
        return f"sha256:{sha256}"
    return f"git:{file['blobId']}" if file.get("blobId") else ""


def _hint(status: int, repo: str) -> str:
    if status in _REFUSED:
        return f"Accept the licence on https://huggingface.co/{repo} if it has one, and log in: hf auth login"
    if status == HTTPStatus.NOT_FOUND:
        return "Correct the name or the revision; a folder of that shape is written with a leading `./`."
    return "Try again later."
