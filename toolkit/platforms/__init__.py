"""Platforms, on which endpoints run: one folder each."""
