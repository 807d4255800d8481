"""What attacks on the local platform would change."""

from __future__ import annotations

from local_account import Account


def state(account: Account) -> dict[str, object]:
    """Objects, models, endpoints and users, as their owner sees them."""
    objects = account.s3.list_objects_v2(Bucket="models").get("Contents", [])
    return {
        "objects": [(item["Key"], item["ETag"]) for item in objects],
        "models": [item["ModelName"] for item in account.sagemaker.list_models()["Models"]],
        "endpoints": [
            (item["EndpointName"], item["EndpointStatus"]) for item in account.sagemaker.list_endpoints()["Endpoints"]
        ],
        "users": account.session.client("iam").list_users()["Users"],
    }
