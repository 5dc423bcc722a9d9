"""Worlds of other libraries as jmarl's environments."""
