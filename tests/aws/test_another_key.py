"""A recipe with another KMS key: its weights are staged anew with it, and those under the old key go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pairs import HUB_RECIPE, write_pair, write_recipe
from standin import StandIn

import toolkit
from toolkit.apply.progress import Silent

KEY, OTHER = "1234abcd-12ab-34cd-56ef-1234567890ab", "5678abcd-12ab-34cd-56ef-1234567890ab"
RECIPE = HUB_RECIPE.replace("platform: {", "platform: {role: create, kms_key: KEY, ").replace("org/", "./")


def test_weights_are_encrypted_with_the_key_that_the_recipe_names_now(
    standin: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**standin.environment(), "TOOLKIT_POLL_SECONDS": "0.01"}.items():
        monkeypatch.setenv(name, value)
    write_pair(tmp_path)
    s3: Any = standin.session().client("s3")
    bucket = "toolkit-123456789012-us-west-2"
    for key in (KEY, OTHER):
        recipe = write_recipe(tmp_path, RECIPE.replace("KEY", key))
        planned = [action for action in toolkit.plan(recipe).changes if action.kind == "Weights"]
        assert {"create"} <= {action.verb for action in planned}
        toolkit.deploy(recipe, progress=Silent())
    toolkit.destroy(recipe, progress=Silent())
    assert standin.leftovers() == ["logs group /aws/sagemaker/Endpoints/hub"]

    toolkit.deploy(write_recipe(tmp_path, RECIPE.replace("KEY", KEY)), progress=Silent())
    toolkit.deploy(recipe := write_recipe(tmp_path, RECIPE.replace("KEY", OTHER)), progress=Silent())
    found = s3.list_objects_v2(Bucket=bucket, Prefix="weights/")["Contents"]
    described = [s3.head_object(Bucket=bucket, Key=item["Key"]) for item in found]
    assert OTHER in {item["SSEKMSKeyId"] for item in described}
    assert toolkit.plan(recipe).changes == []
    models: Any = standin.session().client("sagemaker")
    config = models.describe_endpoint(EndpointName="hub")["EndpointConfigName"]
    variants = models.describe_endpoint_config(EndpointConfigName=config)["ProductionVariants"]
    container = models.describe_model(ModelName=variants[0]["ModelName"])["PrimaryContainer"]
    prefix = container["ModelDataSource"]["S3DataSource"]["S3Uri"].partition(f"{bucket}/")[2]
    of_model = s3.list_objects_v2(Bucket=bucket, Prefix=prefix)["Contents"]
    assert {s3.head_object(Bucket=bucket, Key=item["Key"])["SSEKMSKeyId"] for item in of_model} == {OTHER}
