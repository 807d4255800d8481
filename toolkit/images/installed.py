"""A wheel's files as they lie in the image.

They lie as `pip install --target` puts them: commands in bin/, where packages look for their own. Nothing of this
machine gets in: no installer's notes, no compiled files, and commands begin with the Python that the image finds.
"""

from __future__ import annotations

import configparser
import io
import os
import posixpath
import warnings
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from installer import install
from installer.destinations import SchemeDictionaryDestination
from installer.exceptions import InstallerError
from installer.records import RecordEntry
from installer.scripts import Script
from installer.sources import WheelFile
from installer.utils import Scheme

from toolkit.errors import BuildError
from toolkit.images.spec import OTHER_BUILDERS, ContextFile

if TYPE_CHECKING:
    from installer.scripts import ScriptSection

SITE_PACKAGES = "/opt/toolkit/site-packages"

_INTERPRETER = "/usr/bin/env python3"  # the one that runs `serve`, wherever the base has it


class _Layer(SchemeDictionaryDestination):
    """Installs below `folder`, and keeps in `files` what it wrote, by its path in the image."""

    def __init__(self, distribution: str, folder: Path) -> None:
        name = distribution.replace("_", "-")  # as pip has it
        places = {"headers": f"{SITE_PACKAGES}/include/{name}", "scripts": f"{SITE_PACKAGES}/bin"}
        places |= dict.fromkeys(("purelib", "platlib", "data"), SITE_PACKAGES)
        super().__init__(places, _INTERPRETER, "posix", destdir=str(folder))
        self.files: dict[str, ContextFile] = {}

    def write_script(self, name: str, module: str, attr: str, section: ScriptSection) -> RecordEntry:
        """The command of an entry point, with the same first line as every other script."""
        _, text = Script(name, module, attr, section).generate("python", "posix")
        return self.write_file(Scheme("scripts"), name, io.BytesIO(text), is_executable=True)

    def write_to_fs(
        self, scheme: Scheme, path: str | os.PathLike[str], stream: BinaryIO, is_executable: bool
    ) -> RecordEntry:
        name = os.fspath(path)
        entry = super().write_to_fs(scheme, name, stream, is_executable)
        place = posixpath.normpath(f"{self.scheme_dict[scheme]}/{name}")
        source = Path(f"{self.destdir}{place}")
        self.files[place] = ContextFile(0o755 if is_executable else 0o644, source=source)
        return entry


def install_wheel(wheel: Path, folder: Path, most: int) -> dict[str, ContextFile]:
    """The wheel's files by their paths in the image, written below `folder`. Raises BuildError.

    It may unpack to `most` bytes.
    """
    with WheelFile.open(wheel) as source:
        with zipfile.ZipFile(wheel) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > most:
                message = f"{wheel.name} unpacks to more than {most} bytes"
                raise BuildError(message, hint=f"Leave it out of `container.wheels`, {OTHER_BUILDERS}.")
        layer = _Layer(source.distribution, folder)
        try:
            with warnings.catch_warnings():
                # numpy has some in its wheel: leaving them out is no news to who builds an image
                warnings.filterwarnings("ignore", "Skip installing .*__pycache__", RuntimeWarning)
                install(source, layer, {})
        # a path out of its folder is a ValueError, an entry point without a function an AssertionError
        except (InstallerError, AssertionError, KeyError, ValueError, configparser.Error) as error:
            message = f"{wheel.name} cannot be installed: {error}"
            raise BuildError(message, hint=f"Pin another version, {OTHER_BUILDERS}.") from error
        return layer.files
