"""The streaming server in a process of its own, so that it does not share the interpreter with what it measures."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection

from streaming_server import Answers, streaming


@contextmanager
def process_of(answers: Answers) -> Iterator[tuple[str, Callable[[], list[list[float]]]]]:
    """The server's URL, and what tells once, at the end, when it sent the parts of each answer (time.perf_counter)."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_serve, args=(theirs, answers))
    process.start()
    theirs.close()

    def sent() -> list[list[float]]:
        ours.send(None)
        times: list[list[float]] = ours.recv()
        return times

    yield ours.recv(), sent
    ours.close()
    process.join()


def _serve(pipe: Connection, answers: Answers) -> None:
    with streaming(answers) as running:
        pipe.send(running.url)
        try:
            pipe.recv()
            pipe.send([request.sent for request in running.served])
        except EOFError:
            pass  # nobody asks
