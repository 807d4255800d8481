"""A day on a live account: each kind of request once, recorded, held against the tests' stand-in, and removed again.

docs/explain/live-day.md says how it is run and what it costs.
"""
