"""The same algorithms in PyTorch, to be compared with: written from the references' equations."""
