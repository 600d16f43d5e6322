"""Benchmarks that anybody can rerun: each brings its own upstream, load and floor.

Nothing here imports the gateway: it is started as a user starts it, and measured from outside. Run one
with `scripts/bench NAME`; `route.py` is what a tool call costs.
"""
