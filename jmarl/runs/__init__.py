"""Training with its effects, and what a run leaves on disk."""
