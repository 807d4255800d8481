"""Ctrl-C, SIGTERM and a closed terminal end a command, wherever in other people's code they come."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import toolkit

ROOT = Path(__file__).parents[3]
NUMBERS = ["SIGINT", "SIGTERM", "SIGHUP"]


def said_by(program: str, file: Path, *before: str) -> list[str]:
    """What a program of this file prints that hears interrupts as the commands do."""
    begin = f"""
        import signal, sys, threading, time
        from toolkit.cli.main import hear_interrupts
        hear_interrupts()
        exec(compile(sys.argv[1], {str(file)!r}, "exec"))
    """
    command = [*before, sys.executable, "-c", textwrap.dedent(begin), textwrap.dedent(program)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, check=True)
    return done.stdout.splitlines()


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("at", ["__enter__", "__exit__"])
def test_a_lock_that_is_just_taken_or_given_back_is_free_afterwards(at: str, number: str) -> None:
    program = f"""
        class Lock:
            taken = threading.Lock()

            def __enter__(self):
                self.taken.acquire()
                if {at!r} == "__enter__":
                    signal.raise_signal(signal.{number})

            def __exit__(self, *_):
                if {at!r} == "__exit__":
                    signal.raise_signal(signal.{number})
                self.taken.release()

        try:
            with Lock():
                pass
            time.sleep(30)
        except KeyboardInterrupt:
            print("interrupted, and taken is", Lock.taken.locked())
    """
    assert said_by(program, Path("theirs.py")) == ["interrupted, and taken is False"]


@pytest.mark.parametrize("number", NUMBERS)
def test_it_is_not_lost_where_python_drops_what_a_finalizer_raises(number: str) -> None:
    program = f"""
        class Answer:
            def __del__(self):
                signal.raise_signal(signal.{number})

        try:
            Answer()
            time.sleep(30)
            print("went on")
        except KeyboardInterrupt:
            print("interrupted")
    """
    assert said_by(program, Path("theirs.py")) == ["interrupted"]


def test_in_our_own_code_it_is_heard_at_once_also_by_who_has_a_handler_for_ctrl_c() -> None:
    program = """
        for number in (signal.SIGINT, signal.SIGTERM):
            try:
                signal.raise_signal(number)
                print("went on")
            except KeyboardInterrupt:
                print("interrupted")
        signal.signal(signal.SIGINT, lambda number, frame: print("heard", number))
        signal.raise_signal(signal.SIGTERM)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            signal.raise_signal(signal.SIGTERM)
            print("went on")
        except KeyboardInterrupt:
            print("interrupted")
    """
    said = said_by(program, Path(toolkit.__file__).parent / "ours.py")
    assert said == ["interrupted", "interrupted", f"heard {signal.SIGINT.value}", "interrupted"]


def test_a_command_of_nohup_outlives_its_terminal() -> None:
    program = """
        signal.raise_signal(signal.SIGHUP)
        print("went on")
    """
    assert said_by(program, Path(toolkit.__file__).parent / "ours.py", "nohup") == ["went on"]


def test_a_terminal_that_closes_twice_interrupts_no_clearing_up() -> None:
    program = """
        try:
            signal.raise_signal(signal.SIGTERM)
        except KeyboardInterrupt:
            signal.raise_signal(signal.SIGHUP)
            print("cleared up")
    """
    assert said_by(program, Path(toolkit.__file__).parent / "ours.py") == ["cleared up"]


@pytest.mark.parametrize("number", NUMBERS)
def test_a_measurement_is_cancelled_and_keeps_what_it_has(number: str) -> None:
    program = f"""
        import asyncio
        from toolkit.measure.endpoints import run_to_end

        async def work():
            try:
                signal.raise_signal(signal.{number})
                await asyncio.sleep(30)
            except asyncio.CancelledError:
                return "kept"

        print(run_to_end(work()))
    """
    assert said_by(program, Path("theirs.py")) == ["kept"]


def test_the_second_one_does_not_put_the_first_off() -> None:
    program = """
        began = time.monotonic()
        try:
            while time.monotonic() < began + 5:
                signal.raise_signal(signal.SIGTERM)
                time.sleep(0.05)
            print("went on")
        except KeyboardInterrupt:
            print("interrupted")
    """
    assert said_by(program, Path("theirs.py")) == ["interrupted"]
