"""Compiled programs that processes of the tests share."""

import os

import jax


def cache():
    """Environment variables of a command that finds the programs that the tests of this process
    have compiled, and leaves its own there. Not for commands that are killed while they compile:
    they may leave half a program."""
    least = jax.config.values["jax_persistent_cache_min_compile_time_secs"]
    return {
        "JAX_COMPILATION_CACHE_DIR": jax.config.values["jax_compilation_cache_dir"],
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": str(least),
    }


def cached():
    """This process's environment, with the cache."""
    return os.environ | cache()
