"""Generators of the catalogue: documents that others publish, and facts that only people know, become its JSON files.

A module for each file has `generate`, which takes documents and the facts kept by hand (the folder `kept`, with their
sources). Files without a module are kept by hand as they are: each of their facts names its source.
"""
