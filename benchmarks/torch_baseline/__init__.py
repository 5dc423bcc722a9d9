"""The same algorithms in PyTorch, for comparison: written from the equations of the references."""
