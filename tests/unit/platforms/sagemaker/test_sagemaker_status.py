"""What a user is told of an endpoint of SageMaker whose container cannot start."""

from __future__ import annotations

import pytest

from toolkit.platforms.sagemaker.observe import endpoint_status


@pytest.mark.parametrize(
    ("status", "meanwhile"),
    [
        ("Creating", ", and bills: its"),
        ("Updating", "; the old configuration continues to serve: its"),
    ],
)
def test_it_says_what_goes_on_and_what_waits_for_it(status: str, meanwhile: str) -> None:
    words = endpoint_status("chat", status, "chat-1").hopeless
    assert words.startswith(f"It is still {status}{meanwhile}")
    assert words.endswith("`toolkit destroy chat` wait for it.")


def test_a_missing_log_may_be_a_missing_instance() -> None:
    assert endpoint_status("chat", "Creating", "chat-1").no_log_reason.startswith("SageMaker looks for a free instance")
