"""Read the log of an endpoint's containers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from toolkit.apply.waiter import LogLine, Waitable


def read_log(
    platform: Waitable,
    endpoint: str,
    follow: bool = False,
    since: float | None = None,
    clock: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[LogLine]:
    """Log lines, oldest first: all, or the last `since` seconds. `follow` then waits for new ones.

    Each line is read once. Raises EndpointNotFound, also if the endpoint is removed meanwhile.
    """
    first = clock() - since if since is not None else 0.0
    bookmarks: dict[str, str] = {}
    while True:
        for line in platform.logs(endpoint, bookmarks=bookmarks):
            if line.time >= first:
                yield line
        if not follow:
            return
        sleep(platform.poll_seconds)
