"""Trains the tiny models of `recipes/tiny/models`: their texts, a target, and a drafter of each kind."""
