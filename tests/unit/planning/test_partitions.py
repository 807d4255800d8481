"""Partitions and addresses of AWS's regions, as botocore knows them."""

from __future__ import annotations

import botocore.session

from toolkit.planning.resources import Account
from toolkit.platforms.sagemaker.images import ECR_HOST
from toolkit.platforms.sagemaker.keys import AwsPlatform


def test_every_region_is_in_its_partition() -> None:
    known = {
        region: (partition["id"], partition["outputs"]["dnsSuffix"])
        for partition in botocore.session.get_session().get_data("partitions")["partitions"]
        for region in partition["regions"]
        if not region.endswith("-global")  # stands for the services that have no regions
    }
    accounts = [Account("1" * 12, region) for region in known]
    assert {here.region: (here.partition, here.domain) for here in accounts} == known
    assert all(AwsPlatform(name="sagemaker", region=region).region for region in known), "as a recipe names it"
    assert {found[1] for here in accounts if (found := ECR_HOST.fullmatch(here.registry))} == known.keys()
