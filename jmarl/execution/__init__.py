"""Training programs: compiled, placed on devices, run in batches."""
