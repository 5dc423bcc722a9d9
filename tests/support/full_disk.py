"""A disk that is full."""

import contextlib
import resource
import signal

import jax


@contextlib.contextmanager
def full_disk(size=64):
    """The limit on file sizes stands for the disk's. The suite's programs are not on it."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    cached = jax.config.values["jax_persistent_cache_min_compile_time_secs"]
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 1e9)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", cached)
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
