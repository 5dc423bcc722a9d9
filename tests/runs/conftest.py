"""What several tests of runs share."""

import pytest


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Programs are compiled once for all runs of a file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield
