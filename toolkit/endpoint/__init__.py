"""A deployed endpoint: its handle, streamed answers, metrics, and the proof."""
