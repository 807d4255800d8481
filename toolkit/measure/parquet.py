"""Each request of a measurement as a row of a Parquet file, for pandas and the like."""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path
from typing import Any

from toolkit.errors import MissingPackage, UsageError
from toolkit.files import whole_file
from toolkit.measure.journal import saved_results
from toolkit.measure.result import RequestResult

_ROWS_AT_ONCE = 5_000
_COLUMNS = {
    "arm": "string",
    "workload": "string",
    "prompt": "int64",
    "round": "int64",
    "load": "double",
    "open_loop": "bool",
    "block": "int64",
    "started": "double",
    "seconds": "double",
    "outcome": "string",
    "error": "string",
    "ttft": "double",
    "tpot": "double",
    "prompt_tokens": "int64",
    "cached_tokens": "int64",
    "output_tokens": "int64",
    "reasoning_tokens": "int64",
    "finish_reason": "string",
    "draft_steps": "int64",
    "accepted_tokens": "int64",
    "text": "string",
    "reasoning": "string",
}
_ARRIVALS = "arrivals"
_OF_THE_RESULT = [name for name in _COLUMNS if name not in ("draft_steps", "accepted_tokens")]


def to_parquet(journal: str | os.PathLike[str], parquet: str | os.PathLike[str]) -> int:
    """Write the results that `bench` kept in a journal (`--resume`) to a Parquet file, and return their number.

    A row is a request: what was asked, times in seconds, counts of tokens, the answer, and when its tokens arrived.
    Only its owner may read a new file. Raises UsageError, or MissingPackage without the extra `bench`.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingPackage("writing Parquet needs the package pyarrow", extra="bench") from error
    if Path(journal).resolve() == Path(parquet).resolve():
        hint = "Name another file to write to, such as run.parquet."
        raise UsageError(f"{journal} is what is read: it would be lost", hint=hint)
    columns = [pyarrow.field(name, pyarrow.type_for_alias(kind)) for name, kind in _COLUMNS.items()]
    schema = pyarrow.schema([*columns, pyarrow.field(_ARRIVALS, pyarrow.list_(pyarrow.float64()))])
    results, count = saved_results(Path(journal)), 0
    with (
        whole_file(Path(parquet), "wb", 0o600) as stream,
        pyarrow.parquet.ParquetWriter(stream, schema, compression="zstd") as writer,
    ):
        while rows := [*map(_row, islice(results, _ROWS_AT_ONCE))]:
            try:
                batch = pyarrow.RecordBatch.from_pylist(rows, schema)
            except (pyarrow.ArrowException, OverflowError) as error:
                hint = "Give a file that `toolkit bench … --resume FILE` wrote."
                raise UsageError(f"{journal} has a value that no measurement gives: {error}", hint=hint) from error
            writer.write_batch(batch)
            count += len(rows)
    return count


def _row(result: RequestResult) -> dict[str, Any]:
    drafted = result.acceptance
    return {
        **{name: getattr(result, name) for name in _OF_THE_RESULT},
        "draft_steps": drafted.steps if drafted else None,
        "accepted_tokens": drafted.accepted if drafted else None,
        _ARRIVALS: [arrival.seconds for arrival in result.arrivals[:]],
    }
