"""What is wrong with a recipe, before it costs anything. README.md lists every code."""
