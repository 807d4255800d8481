"""Bytes of the hub's files, for many threads at once: each range is asked for again from where its connection broke."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import httpx
import urllib3
from urllib3.exceptions import HTTPError

from toolkit.errors import HubError

if TYPE_CHECKING:
    from toolkit.recipe.hub import HubFiles

_PIECE_BYTES = 1024**2
_TIMEOUT = urllib3.Timeout(connect=10.0, read=30.0)
# Failures of a range without a byte in between.
_MOST_FAILURES = 6
_FIRST_PAUSE_SECONDS = 0.5
# The hub counts requests in windows of five minutes.
_LONGEST_PAUSE_SECONDS = 300.0
_BUSY = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS)


class _NoBytes(Exception):
    """The server answered with something else than bytes of the file."""

    def __init__(self, status: int, headers: Mapping[str, str]) -> None:
        super().__init__(f"the server answered {status}")
        self.pause = _wanted_pause(headers)


class HubRanges:
    """Ranges of the files of a repository, by at most `connections` threads.

    Bytes come through urllib3, at an eighth of the processor time that they take through httpx; httpx follows the
    hub's redirects and decides which host gets the token, and where they lead is asked for again only when it fails.
    """

    def __init__(self, files: HubFiles, connections: int, sleep: Callable[[float], object] = time.sleep) -> None:
        self._files = files
        self._connections = connections
        self._sleep = sleep
        self._found: dict[str, httpx.Response] = {}
        self._pools: dict[str, urllib3.PoolManager] = {}

    def has_ranges(self, name: str) -> bool:
        """Whether the server sends a part of the file when it is asked for one. Raises HubError."""
        list(self.read(name, 0, 1))
        return self._found[name].status_code == HTTPStatus.PARTIAL_CONTENT

    def read(self, name: str, start: int, end: int) -> Iterator[bytes]:
        """Bytes `start` to before `end` as they come, fewer where the file ends early. Raises HubError."""
        failures = 0
        while True:
            try:
                for piece in self._ask(name, start, end):
                    start, failures = start + len(piece), 0
                    yield piece
                return
            except (_NoBytes, HTTPError, HubError) as error:
                failures += 1
                pause = _pause(error, failures)
                if pause is None:
                    raise
                if failures == _MOST_FAILURES:
                    message = (
                        f"{self._files.location}/{name}: byte {start} did not come in {failures} attempts: {error}"
                    )
                    raise HubError(message, hint="The same command carries on with what is missing.") from error
            self._found.pop(name, None)  # an address that the hub signed has its time
            self._sleep(pause)

    def _ask(self, name: str, start: int, end: int) -> Iterator[bytes]:
        self._found[name] = found = self._found.get(name) or self._files.find(name)
        url, headers = str(found.url), {**found.request.headers, "range": f"bytes={start}-{end - 1}"}
        answer = self._pool(url).request(
            "GET", url, headers=headers, preload_content=False, redirect=False, retries=False
        )
        try:
            if answer.status not in (HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT):
                raise _NoBytes(answer.status, answer.headers)
            # A server without ranges sends the whole file.
            skipped = start if answer.status == HTTPStatus.OK else 0
            while skipped and (piece := answer.read(min(skipped, _PIECE_BYTES), decode_content=False)):
                skipped -= len(piece)
            while start < end and (piece := answer.read(min(end - start, _PIECE_BYTES), decode_content=False)):
                start += len(piece)
                yield piece
        finally:
            answer.close()  # one that was read to its end has given its connection back

    def _pool(self, url: str) -> urllib3.PoolManager:
        """Connections for the address, through the user's proxy where there is one."""
        address, proxies = urlsplit(url), urllib.request.getproxies()
        proxy = proxies.get(address.scheme) or proxies.get("all", "")
        if urllib.request.proxy_bypass(address.hostname or ""):
            proxy = ""
        if proxy not in self._pools:
            self._pools[proxy] = _open_pool(proxy, self._connections)
        return self._pools[proxy]


def _open_pool(proxy: str, connections: int) -> urllib3.PoolManager:
    trust = httpx.create_ssl_context()
    if not proxy:
        return urllib3.PoolManager(maxsize=connections, timeout=_TIMEOUT, ssl_context=trust)
    login = unquote(urlsplit(proxy).netloc.rpartition("@")[0])
    headers = urllib3.make_headers(proxy_basic_auth=login) if login else None
    return urllib3.ProxyManager(proxy, maxsize=connections, timeout=_TIMEOUT, ssl_context=trust, proxy_headers=headers)


def _pause(error: Exception, failures: int) -> float | None:
    """Seconds until the next attempt; None where another one would bring the same."""
    backoff = _FIRST_PAUSE_SECONDS * 2.0 ** (failures - 1)
    cause = error.__cause__ if isinstance(error, HubError) else error
    if isinstance(cause, httpx.HTTPStatusError):
        answer = cause.response
        is_for_now = answer.is_server_error or answer.status_code in _BUSY
        return max(backoff, _wanted_pause(answer.headers)) if is_for_now else None
    if isinstance(cause, _NoBytes):
        return max(backoff, cause.pause)
    return backoff if isinstance(cause, httpx.TransportError | HTTPError) else None


def _wanted_pause(headers: Mapping[str, str]) -> float:
    """Seconds that the server asks for, within reason."""
    after = headers.get("Retry-After", "")
    return min(float(after), _LONGEST_PAUSE_SECONDS) if after.isdecimal() else 0.0
