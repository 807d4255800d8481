"""The toolkit's version, which pyproject.toml reads here, and the name that it is installed by."""

__version__ = "0.1.0"
# On the public index `toolkit` is somebody else's package.
DISTRIBUTION = "peagle-toolkit"
REINSTALL = f"Run: pip uninstall toolkit; pip install --force-reinstall --no-deps {DISTRIBUTION}"


def install_command(extra: str) -> str:
    """The command that installs an extra."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"
