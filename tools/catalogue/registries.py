"""registries.json: AWS's registry accounts by region, and the newest images where not all are, from AWS's SDK."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from toolkit.catalog.lookup import version_key
from tools.catalogue import images
from tools.catalogue.documents import Documents, as_text, kept


def generate(documents: Documents) -> str:
    """The text of the file."""
    facts = kept("registries.json")
    accounts: dict[str, str] = {}
    newest: dict[str, dict[str, str]] = {}
    for version, registries in _versions(documents):
        accounts |= registries
        for start in facts["partitions"]:
            if any(region.startswith(start) for region in registries):
                known = newest.setdefault(start, {}).get("vllm", "")
                newest[start]["vllm"] = max(known, version, key=lambda one: version_key(one or "0"))
    served = {region: account for region, account in sorted(accounts.items()) if not _left_out(region, facts)}
    return as_text({"date": documents.date, "sources": facts["sources"], "newest": newest, "accounts": served})


def _versions(documents: Documents) -> Iterator[tuple[str, dict[str, str]]]:
    """Version of vLLM and registries of each image; the Amazon Linux images have versions of their own."""
    folder = "sagemaker-core/image_uri_config"
    by_vllm: dict[str, Any] = documents.json(f"{folder}/vllm.json")["inference"]["versions"]
    by_server: dict[str, Any] = documents.json(f"{folder}/vllm-server.json")["versions"]
    servers = {image["tag"].rpartition("-v")[2]: image["version"] for image in images.servers(documents, {})}
    for version, image in by_vllm.items():
        yield version, image["registries"]
    for server, image in by_server.items():
        yield servers.get(server, "0"), image["registries"]


def _left_out(region: str, facts: Mapping[str, Any]) -> bool:
    return any(part in region for part in facts["left_out"])
