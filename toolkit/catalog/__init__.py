"""Dated facts about engines, images and platforms, as JSON files, and the look-up."""
