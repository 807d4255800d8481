"""The deployed thing: its handle, a streamed answer, the proof."""
