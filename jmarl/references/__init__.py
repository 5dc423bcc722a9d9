"""Weights of the reference implementations: their names and jmarl's, both ways."""
