"""An endpoint's lease as an object in the toolkit's bucket."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from toolkit.platforms.lease import Entry, Holder, Rules, read_holder
from toolkit.platforms.sagemaker.aws_errors import has_code, unless, unless_missing
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.rules.names import LEASES_PREFIX

if TYPE_CHECKING:
    from types_boto3_s3.type_defs import GetObjectOutputTypeDef

_LARGEST_BYTES = 64 * 1024
# The object is another than the condition of the write says.
_IS_CHANGED = has_code("PreconditionFailed", "ConditionalRequestConflict", "NoSuchKey")


class BucketLease:
    """See platforms.lease.LeaseStore. Raises ClientError without the bucket."""

    # Holders' clocks count: nobody would wait for five minutes to see whether a lease is renewed.
    rules = Rules(seconds=300.0, renewal_seconds=60.0, poll_seconds=None)
    errors: tuple[type[Exception], ...] = (ClientError, BotoCoreError)

    def __init__(self, clients: Clients, bucket: str, endpoint: str) -> None:
        self._clients = clients
        self._bucket = bucket
        self._name = f"{LEASES_PREFIX}{endpoint}"
        self.key = f"s3://{bucket}/{self._name}"

    def create(self, holder: Holder) -> str:
        return self._put(holder, IfNoneMatch="*")

    def read(self) -> Entry | None:
        ask = partial(self._clients.s3.get_object, Bucket=self._bucket, Key=self._name)
        answer = unless_missing(self._clients, ask)
        if answer is None:
            return None
        try:
            holder = read_holder(answer["Body"].read(_LARGEST_BYTES))
        except ValueError:
            return Entry(answer["ETag"], None, self.rules.seconds)
        return Entry(answer["ETag"], None if self._is_stale(answer) else holder, self.rules.seconds)

    def _is_stale(self, answer: GetObjectOutputTypeDef) -> bool:
        """Whether nobody has renewed it for its time, by S3's own clock: it may say that it lasts for years."""
        now = answer["ResponseMetadata"].get("HTTPHeaders", {}).get("date")
        asked = parsedate_to_datetime(now) if now else datetime.now(UTC)
        return (asked - answer["LastModified"]).total_seconds() > self.rules.seconds

    def replace(self, holder: Holder, version: str) -> str:
        return self._put(holder, IfMatch=version)

    def delete(self, version: str) -> bool:
        ask = partial(self._clients.s3.delete_object, Bucket=self._bucket, Key=self._name, IfMatch=version)
        return unless(self._clients, ask, _IS_CHANGED) is not None

    def _put(self, holder: Holder, **condition: Any) -> str:
        body = json.dumps(asdict(holder)).encode()
        # The bucket's name can be guessed: weights shall not go to one that somebody else made.
        owner = self._clients.account_id
        ask = partial(self._clients.s3.put_object, Bucket=self._bucket, Key=self._name, Body=body)
        written = unless(self._clients, partial(ask, ExpectedBucketOwner=owner, **condition), _IS_CHANGED)
        return written["ETag"] if written else ""
