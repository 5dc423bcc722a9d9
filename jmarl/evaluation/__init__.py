"""Trained policies: loaded, played in other worlds."""
