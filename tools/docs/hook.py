"""Adds the generated pages to the site; mkdocs.yml names this file under `hooks`."""

from __future__ import annotations

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from tools.docs import catalogue, commands, findings, keys, python_api, repository


def pages() -> dict[str, str]:
    """Every generated page's text by its path."""
    return {
        "reference/commands.md": commands.commands_page(),
        "reference/recipe.md": keys.keys_page(),
        "reference/python.md": python_api.python_page(),
        "reference/checks.md": findings.checks_page(),
        "reference/causes.md": findings.causes_page(),
        "reference/engines.md": catalogue.engines_page(),
        "reference/instances.md": catalogue.instances_page(),
        "reference/heads.md": catalogue.heads_page(),
        **catalogue.recipe_pages(),
        **repository.documents(),
    }


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Called by mkdocs when it has found the written pages."""
    for path, text in pages().items():
        files.append(File.generated(config, path, content=text))
    return files
