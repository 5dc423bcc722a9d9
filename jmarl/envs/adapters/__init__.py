"""Adapters that turn worlds of other libraries into jmarl environments."""
