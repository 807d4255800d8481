"""Files of prompts that hold secrets, or far more than they seem to."""

from __future__ import annotations

import io
import json
import resource

import pyarrow
import pyarrow.parquet
import pytest

from toolkit.errors import UsageError
from toolkit.recipe.prompts import parse_prompts

SECRET = "sk-live-4f9a8b7c6d5e4f3a2b1c"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", f"{SECRET},Hello\nmore,text\n"),
        ("a.csv", f"api_key,prompt\n{SECRET},\n"),
        ("a.jsonl", json.dumps({"api_key": SECRET, "text": SECRET})),
        ("a.jsonl", json.dumps({"prompt": {"api_key": SECRET}})),
        ("a.jsonl", json.dumps({"prompt": "a", "max_tokens": SECRET})),
        ("a.jsonl", json.dumps({"messages": [{"role": SECRET, "content": "a"}]})),
        ("a.jsonl", f'{{"prompt": "{SECRET}"'),
        ("a.jsonl", json.dumps([SECRET])),
    ],
)
def test_no_value_of_a_file_is_shown(name: str, content: str) -> None:
    """A file without a head, or with a column of keys, is refused without a word of what is in it."""
    with pytest.raises(UsageError) as refusal:
        parse_prompts(content.encode(), name)
    assert SECRET not in str(refusal.value)


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@pytest.mark.parametrize("encoding", ["dictionary", "zeros"])
def test_a_small_parquet_file_of_huge_prompts_is_refused(encoding: str) -> None:
    """A text that is stored once and repeated in each row, or that packs well: gigabytes from less than a megabyte."""
    text, rows = ("x" * 500_000, 20_000) if encoding == "dictionary" else ("0" * 30_000_000, 10)
    column = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * rows, pyarrow.int32()), pyarrow.array([text]))
    written = io.BytesIO()
    if encoding == "dictionary":
        pyarrow.parquet.write_table(pyarrow.table({"prompt": column}), written)
    else:
        with pyarrow.parquet.ParquetWriter(
            written,
            pyarrow.schema([("prompt", pyarrow.string())]),
            compression="zstd",
            use_dictionary=False,
            write_statistics=False,
        ) as writer:
            for _ in range(rows):
                writer.write_table(pyarrow.table({"prompt": [text]}))
    assert len(written.getvalue()) < 1_000_000
    before = peak()
    with pytest.raises(UsageError, match="more than 256 MiB of text"):
        parse_prompts(written.getvalue(), "a.parquet")
    assert peak() - before < 2 * 1024**3
