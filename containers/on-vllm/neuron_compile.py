"""Compiles for Neuron devices by starting the engine once; compiling.py has the rest. Standard library only."""

from __future__ import annotations

import os
from pathlib import Path

from artifacts import remove_files
from compiling import Compiling, compile_artifacts
from entrypoint import Launch
from neuron_entrypoint import HOST, Engine, Places, local_cache, prepare


def compile_for(engine: Engine, places: Places = HOST) -> int:
    """Makes the artifacts of that engine; the exit code."""
    return compile_artifacts(lambda folder: _compiling(engine, places, folder))


def _compiling(engine: Engine, places: Places, folder: Path) -> Compiling:
    """The engine's start with the right to compile. A cache is kept: its entries are whole or not there."""
    started, kept = prepare(engine, places), folder / engine.folder
    if not engine.local:
        remove_files(kept)
    place = local_cache(os.environ) if engine.local else kept
    env = {name: value for name, value in started.env.items() if name not in engine.never_compile}
    return Compiling(Launch(started.options, {**env, engine.variable: str(place)}), place, kept)
