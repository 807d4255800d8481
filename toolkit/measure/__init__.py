"""Measure endpoints: `prove` in a minute, `bench` the full picture, `tune` the best setting. All three are this road:

workloads ──► run ──► results ──► statistics, lossless ──► verdicts ──► report
prompts       paired arms         intervals, floor         yes/no/?     text, JSON, HTML
"""
