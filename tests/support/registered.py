"""Algorithms, worlds and plug-ins of one test, gone after it."""

import sys

import pytest

from jmarl import plugins, registry
from jmarl.config import known_options
from jmarl.envs.mpe import SCENARIOS

TABLES = (
    *(registry.ALGORITHMS, registry.WORLDS, SCENARIOS, plugins.LOADED),
    *(known_options.SECTIONS, known_options.FIELDS, known_options.OPTIONS),
)


@pytest.fixture(name="registry")
def own_registry():
    """What the test registers is forgotten after it."""
    before = [dict(table) for table in TABLES]
    yield
    for module in plugins.LOADED.keys() - before[3].keys():
        sys.modules.pop(module, None)
    for table, content in zip(TABLES, before, strict=True):
        table.clear()
        table.update(content)
