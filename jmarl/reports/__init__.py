"""Runs side by side on one page."""
