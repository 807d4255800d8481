"""The command line: one module for each group of commands."""

import os

# Else pydantic looks through all installed packages for plugins, a tenth of the time of `toolkit check`.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
