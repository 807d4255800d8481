"""A JSON object with further keys. It stands apart from `documents`, which loads without any other package."""

from __future__ import annotations

from typing_extensions import TypedDict


class OpenObject(TypedDict, total=False):
    """An object of which the keys that we read are declared, by inheriting; other keys are kept as they are."""

    __pydantic_config__ = {"extra": "allow"}  # type: ignore[misc]  # noqa: RUF012
