"""Which endpoints are ours: three lists of a hundred on a page, and the details of few, at the pace that AWS allows."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from botocore.exceptions import ClientError

from toolkit.endpoint.platform import PAUSED, Deployed, Found
from toolkit.planning.names import ENDPOINT_TAG
from toolkit.platforms.sagemaker.aws_errors import THROTTLED, code_of
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.kinds.base import by_key
from toolkit.platforms.sagemaker.observe import read_endpoint
from toolkit.platforms.sagemaker.rules.names import PAUSED_TAG
from toolkit.platforms.sagemaker.rules.price import price_of_instances

if TYPE_CHECKING:
    from types_boto3_sagemaker.type_defs import (
        DescribeEndpointConfigOutputTypeDef,
        DescribeEndpointOutputTypeDef,
        EndpointSummaryTypeDef,
    )

_T = TypeVar("_T")
MOST_DESCRIBED = 100
"""So many endpoints are described if nobody says which: instances and price take two calls for each."""

SECONDS, DETAILED_SECONDS = 15.0, 900.0
"""How long a list may take; one with all details."""

_UNKNOWN = "Unknown"
_PER_PAGE = 100
# boto3's clients may be used by several threads; more of them only meet AWS's throttling.
_THREADS = 8
_FIRST_INTERVAL, _LONGEST_INTERVAL, _CLOSER = 0.05, 2.0, 0.95


class TimeUp(Exception):
    """AWS throttled calls until the time was up."""


@dataclass
class Pace:
    """Spaces the calls of all threads: twice as far apart when AWS throttles one, a little closer after each it takes.

    botocore's own adaptive mode starts again from a call every two seconds if it is throttled in its first half second.
    """

    seconds: float = SECONDS
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _interval: float = 0.0
    _next: float = 0.0
    _slowed: float = 0.0

    def __post_init__(self) -> None:
        self._ends = self.clock() + self.seconds

    def call(self, ask: Callable[[], _T]) -> _T:
        """The answer, as soon as AWS gives it. Raises TimeUp, and ClientError for any other refusal."""
        while True:
            self._wait()
            began = self.clock()
            try:
                answer = ask()
            except ClientError as error:
                if code_of(error) not in THROTTLED:
                    raise
                self._slower(began)
            else:
                with self._lock:
                    self._interval *= _CLOSER
                return answer

    def _wait(self) -> None:
        with self._lock:
            now = self.clock()
            turn = max(now, self._next)
            if turn > self._ends:
                raise TimeUp
            self._next = turn + self._interval
        if turn > now:
            self.sleep(turn - now)

    def _slower(self, began: float) -> None:
        """Once for all calls that were under way when the first of them was throttled."""
        with self._lock:
            if began >= self._slowed:
                self._interval = min(max(2 * self._interval, _FIRST_INTERVAL), _LONGEST_INTERVAL)
                self._slowed = self.clock()
                self._next = max(self._next, self._slowed + self._interval)


def list_endpoints(
    clients: Clients, platform: str, is_wanted: Callable[[str], bool], details: bool | None, pace: Pace
) -> Found:
    """Ours of those names, without those that are deleted meanwhile. What AWS throttled for too long is left out, and
    the result says so. `details` None describes all if they are few.
    """
    owned, has_all_owned = _until_time_is_up(_owned(clients, pace))
    paused, has_all_paused = _until_time_is_up(_paused(clients, platform, pace))
    summaries, has_all_summaries = _until_time_is_up(_summaries(clients, pace)) if owned or paused else ([], True)
    by_name = {item["EndpointName"]: item for item in summaries}
    names = sorted(name for name in owned if is_wanted(name) and (name in by_name or not has_all_summaries))
    listed = [_in_brief(clients, platform, name, by_name.get(name)) for name in names]
    if details or (details is None and len(names) <= MOST_DESCRIBED):
        _ = clients.sagemaker  # made once, and not by eight threads at a time
        with ThreadPoolExecutor(_THREADS) as threads:
            listed = [item for item in threads.map(lambda brief: _described(clients, brief, pace), listed) if item]
    if has_all_summaries:  # else one that serves again would be listed twice
        once = {item.name: item for item in paused if is_wanted(item.name) and item.name not in by_name}
        listed = sorted((*listed, *once.values()), key=lambda item: item.name)
    incomplete = ""
    if not (has_all_owned and has_all_paused and has_all_summaries):
        region = clients.session.region_name
        incomplete = f"AWS throttled the list of endpoints in {region} for {pace.seconds:.0f} s: there may be more"
    return Found(tuple(listed), incomplete)


def _until_time_is_up(items: Iterator[_T]) -> tuple[list[_T], bool]:
    """The items that there was time for, and whether these are all."""
    found: list[_T] = []
    try:
        for item in items:
            found.append(item)
    except TimeUp:
        return found, False
    return found, True


def _owned(clients: Clients, pace: Pace) -> Iterator[str]:
    """Names of all endpoints that carry our tag."""
    for item in _tagged(clients, "sagemaker:endpoint", ENDPOINT_TAG, pace):
        yield item["ResourceARN"].rpartition("/")[2]


def _paused(clients: Clients, platform: str, pace: Pace) -> Iterator[Deployed]:
    """All that were paused; some may serve again. `created` is when that was."""
    for item in _tagged(clients, "sagemaker:endpoint-config", PAUSED_TAG, pace):
        tags = by_key(item["Tags"])
        since = tags[PAUSED_TAG]
        yield Deployed(
            name=tags.get(ENDPOINT_TAG, ""),
            platform=platform,
            region=clients.session.region_name,
            status=PAUSED,
            config=item["ResourceARN"].rpartition("/")[2],
            created=float(since) if since.isdecimal() else None,
            instances=(),
            price_per_hour=0.0,
        )


def _tagged(clients: Clients, kind: str, key: str, pace: Pace) -> Iterator[Mapping[str, Any]]:
    request: dict[str, Any] = {
        "TagFilters": [{"Key": key}],
        "ResourceTypeFilters": [kind],
        "ResourcesPerPage": _PER_PAGE,
    }
    for page in _pages(lambda more: clients.tagging.get_resources(**request, **more), "PaginationToken", pace):
        yield from page["ResourceTagMappingList"]


def _summaries(clients: Clients, pace: Pace) -> Iterator[EndpointSummaryTypeDef]:
    """All endpoints of the region with their status, whoever made them."""
    ask = clients.sagemaker.list_endpoints
    for page in _pages(lambda more: ask(MaxResults=_PER_PAGE, **more), "NextToken", pace):
        yield from page["Endpoints"]


def _pages(ask: Callable[[dict[str, Any]], Mapping[str, Any]], token: str, pace: Pace) -> Iterator[Mapping[str, Any]]:
    """botocore's paginators end with the first page that is throttled."""
    more: dict[str, Any] = {}
    while True:
        page = pace.call(lambda: ask(more))  # noqa: B023 (called at once)
        yield page
        if not page.get(token):
            return
        more = {token: page[token]}


def _in_brief(clients: Clients, platform: str, name: str, summary: EndpointSummaryTypeDef | None) -> Deployed:
    return Deployed(
        name=name,
        platform=platform,
        region=clients.session.region_name,
        status=summary["EndpointStatus"] if summary else _UNKNOWN,
        config="",
        created=summary["CreationTime"].timestamp() if summary else None,
        instances=(),
        price_per_hour=None,
        described=False,
    )


def _described(clients: Clients, brief: Deployed, pace: Pace) -> Deployed | None:
    """With all details; as it was if there was no time, None if it has gone."""
    try:
        found = read_endpoint(clients, brief.name, pace.call)
    except TimeUp:
        return brief
    if found is None:
        return None
    endpoint, config = found
    instances = _instances(endpoint, config)
    return Deployed(
        name=brief.name,
        platform=brief.platform,
        region=brief.region,
        status=endpoint["EndpointStatus"],
        config=endpoint["EndpointConfigName"],
        created=endpoint["CreationTime"].timestamp(),
        instances=instances,
        price_per_hour=price_of_instances(instances) if brief.platform == "sagemaker" else 0.0,
        failure_reason=endpoint.get("FailureReason", ""),
    )


def _instances(
    endpoint: DescribeEndpointOutputTypeDef, config: DescribeEndpointConfigOutputTypeDef
) -> tuple[tuple[str, int], ...]:
    """Type (the first of a variant's pools) and number, which is the one that autoscaling has come to."""
    summaries = [*endpoint.get("ProductionVariants", []), *endpoint.get("ShadowProductionVariants", [])]
    now = {item["VariantName"]: item.get("CurrentInstanceCount") for item in summaries}
    variants = [*config["ProductionVariants"], *config.get("ShadowProductionVariants", [])]
    return tuple(
        (
            variant.get("InstanceType") or variant["InstancePools"][0]["InstanceType"],
            now.get(variant["VariantName"]) or variant["InitialInstanceCount"],
        )
        for variant in variants
    )
