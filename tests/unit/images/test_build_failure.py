"""What a build tool's last words mean."""

from __future__ import annotations

import pytest

from toolkit.images.command import Ended, build_failure


@pytest.mark.parametrize(
    "words",
    [
        "potentially insufficient UIDs or GIDs available in user namespace (requested 42:42 for /true): lchown /true",
        'copier: put: error setting ownership of "/true" to 42:42: lchown /true: invalid argument',
        'cannot find mappings for user "me": No subuid ranges found for user "me" in /etc/subuid',
    ],
)
def test_a_user_without_ranges_of_ids_is_told_to_get_some(words: str) -> None:
    failure = build_failure("podman", Ended(125, ("STEP 1/3: FROM base", words)), "base", "")
    assert "users cannot be mapped" in failure.message
    assert "--add-subuids" in failure.hint
