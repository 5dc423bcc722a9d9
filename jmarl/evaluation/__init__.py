"""Trained policies: loading, acting, playing in mpe2, importing from torch."""
