"""Faults, each tried on real commands: what survives them, and what is lost."""
