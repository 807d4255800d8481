"""aws_errors.json: what AWS's own models say of the errors of the services that the toolkit calls, read in botocore."""

from __future__ import annotations

import json
import re
from html import unescape

from tools.catalogue.documents import Documents

# What a code means is that of the first service that has it.
_SERVICES = (
    "sagemaker",
    "sagemaker-runtime",
    "application-autoscaling",
    "ecr",
    "s3",
    "sts",
    "iam",
    "logs",
    "cloudwatch",
    "kms",
    "service-quotas",
)
_LONGEST = 240

DOCUMENT = "botocore/errors.json"
"""What `read_meanings` found when the documents were read."""


def generate(documents: Documents) -> str:
    """The text of the file."""
    meanings = documents.json(DOCUMENT)
    source = "the service models of botocore: the documentation of their error shapes, its first sentence"
    data = {"date": documents.date, "source": source, "meanings": meanings}
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def read_meanings() -> dict[str, str]:
    """The first sentence of the documentation of each error, by its code, in the botocore that is installed."""
    from botocore.session import get_session

    session, found = get_session(), dict[str, str]()
    for service in _SERVICES:
        model = session.get_service_model(service)
        for shape in map(model.shape_for, model.shape_names):
            if not shape.metadata.get("exception"):
                continue
            said = _sentence(shape.documentation)
            if said and len(said) <= _LONGEST:
                found.setdefault(shape.metadata.get("error", {}).get("code", shape.name), said)
    return dict(sorted(found.items()))


def _sentence(documentation: str) -> str:
    text = " ".join(unescape(re.sub(r"<[^>]+>", "", documentation)).split())
    return re.split(r"(?<=\.) (?=[A-Z])", text, maxsplit=1)[0]
