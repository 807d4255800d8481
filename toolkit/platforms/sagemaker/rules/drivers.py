"""The host image of an endpoint's instances, by the NVIDIA driver that its container and its GPUs need."""

from __future__ import annotations

from collections.abc import Iterable

from toolkit.catalog import lookup
from toolkit.catalog.lookup import Image

# botocore 1.44.5, ProductionVariant: the NVIDIA driver of each InferenceAmiVersion for GPUs.
AMI_DRIVERS = {
    "al2-ami-sagemaker-inference-gpu-2": 535,
    "al2-ami-sagemaker-inference-gpu-2-1": 535,
    "al2-ami-sagemaker-inference-gpu-3-1": 550,
    "al2023-ami-sagemaker-inference-gpu-4-1": 580,
}
# Blackwell's GPUs came with CUDA 12.8 and driver 570 (NVIDIA's GPU Operator: HGX B200 from 570.133.20 on).
_BLACKWELL, _BLACKWELL_DRIVER = 10.0, 570


def inference_ami(image: Image, instance_types: Iterable[str]) -> str:
    """SageMaker's InferenceAmiVersion: that of the image, or the next whose driver knows the GPUs.

    A newer driver runs the programs of an older CUDA, so an image for CUDA 12.9 serves on Blackwell with driver 580.
    """
    known = filter(None, map(lookup.instance, instance_types))
    new = any(float(instance.compute_capability or 0) >= _BLACKWELL for instance in known)
    if not new or AMI_DRIVERS.get(image.ami, _BLACKWELL_DRIVER) >= _BLACKWELL_DRIVER:
        return image.ami
    return next(ami for ami, driver in AMI_DRIVERS.items() if driver >= _BLACKWELL_DRIVER)
