"""The training core: rollout, returns, losses, updates. Pure functions."""
