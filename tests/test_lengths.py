"""A function is an equation or one act: none is longer than 40 lines, its docstring not counted."""

import ast

import pytest

from tests.test_layering import modules

LONGEST = 40


def too_long(found=None):
    """Functions and methods with more lines than that."""
    return [
        f"{name}.{node.name} has {lines} lines"
        for name, tree in found or modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := length(node)) > LONGEST
    ]


def length(function):
    """From `def` to the last line, without the docstring."""
    lines = function.end_lineno - function.lineno + 1
    if ast.get_docstring(function) is None:
        return lines
    return lines - (function.body[0].end_lineno - function.body[0].lineno + 1)


def test_no_function_is_longer_than_forty_lines():
    assert too_long() == []


@pytest.mark.parametrize("first", ["def f():", "async def f():", "class C:\n  def f(self):"])
def test_a_longer_one_is_found(first):
    for lines, found in ((LONGEST - 1, False), (LONGEST, True)):
        source = first + '\n    """One\n    two."""' + "\n    x = 1" * lines
        assert bool(too_long([("jmarl.x", ast.parse(source))])) == found
