"""Benchmarks. Each is a command, `python -m benchmarks.NAME`; nothing in jmarl imports them."""
