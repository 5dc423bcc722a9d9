"""The policy interface and its implementations."""
