"""The corpus as rows of tokens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from tokenizers import Tokenizer
from torch import Tensor

from tools.tiny.corpus import examples
from tools.tiny.tokenizer import chat_text, train_tokenizer

TOKENIZER_TEXTS = 3000
CHECKED_ROWS = 8


@dataclass(frozen=True)
class TextSettings:
    """The corpus, its tokenizer, and how many tokens make a row."""

    seed: int = 7
    count: int = 24_000
    row_tokens: int = 512
    vocab_size: int = 2048


@dataclass(frozen=True)
class Texts:
    """Rows of tokens, [rows, row_tokens]; the `checked` ones are not trained on."""

    tokenizer: Tokenizer
    trained: Tensor
    checked: Tensor


def make_texts(settings: TextSettings) -> Texts:
    """The corpus, and the tokenizer that is trained on its first texts."""
    texts = [chat_text(example) for example in examples(settings.seed, settings.count)]
    tokenizer = train_tokenizer(texts[:TOKENIZER_TEXTS], settings.vocab_size)
    rows = _rows(tokenizer, texts, settings.row_tokens)
    return Texts(tokenizer, rows[:-CHECKED_ROWS], rows[-CHECKED_ROWS:])


def batches(rows: Tensor, size: int) -> Iterator[Tensor]:
    """Random batches [size, row_tokens] without end; every row comes once before any comes again."""
    while True:
        for chosen in torch.split(torch.randperm(len(rows)), size):
            yield rows[chosen]


def _rows(tokenizer: Tokenizer, texts: list[str], length: int) -> Tensor:
    """Texts one after the other; each row starts with the beginning of one, as a prompt does."""
    rows: list[list[int]] = [[]]
    for encoding in tokenizer.encode_batch(texts):
        if len(rows[-1]) >= length:
            rows.append([])
        rows[-1].extend(encoding.ids)
    return torch.tensor([row[:length] for row in rows if len(row) >= length])
