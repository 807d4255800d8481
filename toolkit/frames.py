"""Rows as a pandas DataFrame, for those who have pandas: the toolkit itself does not need it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from toolkit.errors import UsageError


def data_frame(rows: Iterable[Mapping[str, Any]]) -> Any:
    """A DataFrame with a column for each key. Raises UsageError where pandas is not installed."""
    try:
        import pandas
    except ImportError as error:
        raise UsageError("a DataFrame needs the package pandas", hint="Run: pip install pandas") from error
    return pandas.DataFrame(list(rows))
