"""Find errors in a recipe before anything is created. README.md lists every code."""
