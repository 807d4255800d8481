"""The Python code of a version of vLLM that is not installed: its wheel without what was compiled, kept in the cache.

Its parser and its configuration are Python alone, so 30 to 50 MB of a wheel of 300 tell what it makes of a recipe. They
run with the PyTorch and the other packages that are here, whatever versions of them it was released with.
"""

from __future__ import annotations

import sys
import zipfile
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from toolkit.catalog.lookup import older
from toolkit.errors import BuildError
from toolkit.files import make_private_folder
from toolkit.home import cache
from toolkit.images.spec import on_disk
from toolkit.images.wheels import download_wheels

# vLLM before that version imports it; later ones, and so what is installed beside them, do without.
_BESIDE, _BESIDE_BEFORE = "gguf==0.19.0", "0.24.0"
# What is compiled in 0.20 is for a newer C library than bases have; nothing of it is kept.
_NEWER = "manylinux_2_35_x86_64"
_READ = (".py", ".json", ".jinja", ".dist-info/METADATA")


def folder(version: str) -> Path:
    """Where the code of that version is kept; it need not be there."""
    return cache() / "engines" / f"vllm-{version}"


def fetch(version: str) -> None:
    """Fetch the code of that version with pip, from its indexes. Raises ToolkitError, and leaves nothing then."""
    kept = folder(version)
    with on_disk(f"keep the code of vLLM {version}"):
        make_private_folder(kept.parent)
        with TemporaryDirectory(prefix=f"{kept.name}-", dir=kept.parent) as name:
            wheels, code = Path(name) / "wheels", Path(name) / "code"
            pins = [f"vllm=={version}", *([_BESIDE] if older(version, _BESIDE_BEFORE) else [])]
            download_wheels(pins, f"{sys.version_info.major}.{sys.version_info.minor}", wheels, also=(_NEWER,))
            for wheel in wheels.glob("*.whl"):
                _unpack(wheel, code)
            with suppress(OSError):  # another process was first
                code.rename(kept)


def _unpack(wheel: Path, code: Path) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(code, [file for file in archive.namelist() if file.endswith(_READ)])
    except zipfile.BadZipFile as error:
        raise BuildError(f"cannot unpack {wheel.name}: {error}", hint="Fetch it again.") from error
