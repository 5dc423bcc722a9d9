"""Benchmarks. Each is a command, `python -m benchmarks.NAME`; nothing in jmarl imports them.

Python imports this package before it runs a module of it, so that signals end a benchmark from its
first line on, as they end every command."""

import sys

if sys.argv[0] == "-m":  # what Python has there until it runs the module
    from jmarl.runs.signals import end_on_signals

    end_on_signals()
