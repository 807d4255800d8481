"""instances.json: hardware from EC2, what can host from SageMaker's model, regions and prices from its lists."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from toolkit.catalog import published
from tools.catalogue.documents import Documents, as_text, kept

_MIB = 1024
# The catalogue's own key is SageMaker's name.
_PREFIX = "ml."
_FIRST_REGION = "us-east-1"


def generate(documents: Documents) -> str:
    """The text of the file."""
    facts = kept("instances.json")
    hostable = set(documents.json("botocore/sagemaker.json")["shapes"]["ProductionVariantInstanceType"]["enum"])
    regions = documents.json("cfn-lint/sagemaker-hosting-instance-types.json")
    hosting, ec2 = (
        _prices(documents, service, facts[key])
        for service, key in (("AmazonSageMaker", "prices"), ("AmazonEC2", "ec2_prices"))
    )
    instances = []
    for hardware in sorted(_hardware(documents, facts), key=lambda item: str(item["InstanceType"])):
        ec2_name = hardware["InstanceType"]
        name = f"{_PREFIX}{ec2_name}"
        instances.append(
            {
                "name": name,
                **_entry(hardware, facts["accelerators"]),
                "hostable": name in hostable,
                "regions": sorted(region for region, types in regions.items() if name in types["enum"]),
                "prices": hosting.get(name, []),
                "ec2_prices": ec2.get(ec2_name, []),
                "no_price": None if name in hosting else _reason(name, facts["no_price"]),
                "no_ec2_price": None if ec2_name in ec2 else _reason(ec2_name, facts["no_ec2_price"]),
            }
        )
    return as_text({"date": documents.date, "sources": facts["sources"], "instances": instances})


def _hardware(documents: Documents, facts: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Entries of EC2's DescribeInstanceTypes; those kept by hand take the place of EC2's."""
    own = {item["InstanceType"]: item for item in facts["hardware"]}
    yield from own.values()
    for item in documents.json("ec2/instance-types.json")["InstanceTypes"]:
        family, _, size = item["InstanceType"].partition(".")
        if family in facts["families"] and not size.startswith("metal") and item["InstanceType"] not in own:
            yield item


def _entry(hardware: Mapping[str, Any], accelerators: Mapping[str, Any]) -> dict[str, Any]:
    gpus = hardware.get("GpuInfo", {}).get("Gpus", [])
    neuron = hardware.get("NeuronInfo", {}).get("NeuronDevices", [])
    device = (gpus or neuron or [{}])[0]
    known = accelerators[device["Name"]] if device else {}
    count = device.get("Count", 0)
    cores = count * device["CoreInfo"]["Count"] if neuron else 0
    return {
        "architecture": hardware["ProcessorInfo"]["SupportedArchitectures"][-1],
        "accelerator": known.get("name", device.get("Name", "")),
        "accelerator_count": count,
        "memory_per_accelerator_mib": known.get("memory_mib") or device.get("MemoryInfo", {}).get("SizeInMiB", 0),
        **({"cuda_memory_mib": known["cuda_memory_mib"]} if "cuda_memory_mib" in known else {}),
        "compute_capability": known.get("compute_capability", ""),
        "interconnect": known["interconnect"] if count > 1 else "",
        "vcpus": hardware["VCpuInfo"]["DefaultVCpus"],
        "host_memory_gib": hardware["MemoryInfo"]["SizeInMiB"] / _MIB,
        "local_nvme_gb": hardware.get("InstanceStorageInfo", {}).get("TotalSizeInGB", 0),
        "neuron_cores": cores,
        "neuron_cores_logical": cores // known.get("cores_per_logical", 1),
    }


def _prices(
    documents: Documents, service: str, at_second_hand: list[dict[str, Any]]
) -> dict[str, list[dict[str, Any]]]:
    """Prices by type, one for each region: of AWS's price list where it was read, else those kept by hand."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for group in at_second_hand:
        source = {key: group[key] for key in ("region", "date", "source", "quality")}
        found |= {(name, group["region"]): {"usd_per_hour": usd, **source} for name, usd in group["types"].items()}
    for file in sorted((documents.folder / "pricing" / service).glob("*.json")):
        listed = published.price_list(file.read_bytes(), service)
        source = {
            "region": file.stem,
            "date": listed.date,
            "source": published.price_list_url(service, file.stem),
            "quality": "good",
        }
        found |= {(name, file.stem): {"usd_per_hour": usd, **source} for name, usd in listed.prices.items()}
    by_type: dict[str, list[dict[str, Any]]] = {}
    for (name, _), price in sorted(found.items(), key=lambda item: _order(*item[0])):
        by_type.setdefault(name, []).append(price)
    return by_type


def _reason(name: str, groups: list[dict[str, Any]]) -> dict[str, str] | None:
    """Why no price of the type is known, and the page to look at."""
    found = next((group for group in groups if name in group["types"]), None)
    return {key: found[key] for key in ("reason", "address")} if found else None


def _order(name: str, region: str) -> tuple[str, bool, bool, str]:
    """The first price is shown where the region's own is not known."""
    return name, region != _FIRST_REGION, not region.startswith("us-"), region
