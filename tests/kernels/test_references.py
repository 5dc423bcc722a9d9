"""What is tuned by hand lies in `jmarl/kernels`, beside its plain equation and with tests."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KERNELS = [p for p in sorted((ROOT / "jmarl/kernels").glob("*.py")) if p.stem != "__init__"]
TUNED = re.compile(r"custom_vjp|custom_jvp|optimization_barrier|platform_dependent")
NO_KERNELS = {"host"}  # how a program calls Python depends on the device
NOT_TUNED = {"precision"}  # a rule about sums, no faster way to make them


def test_hand_written_gradients_and_layouts_are_kernels():
    sources = (ROOT / "jmarl").rglob("*.py")
    tuned = [path for path in sources if TUNED.search(path.read_text(encoding="utf-8"))]
    assert len(tuned) >= 5
    assert all(path.parent.name == "kernels" or path.stem in NO_KERNELS for path in tuned)


@pytest.mark.parametrize("path", KERNELS, ids=lambda path: path.stem)
def test_a_kernel_stands_beside_its_equation(path):
    """`f` beside `f_reference`, which uses no kernel, and both are used in the module's tests."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    equations = {name for name in functions if re.search(r"^[a-z].*_reference$", name)}
    assert equations or path.stem in NOT_TUNED
    for name in equations:
        used = {n.id for n in ast.walk(functions[name]) if isinstance(n, ast.Name)}
        own = used & set(functions)
        assert all(helper.endswith("_reference") for helper in own), own
        kernel = name.removesuffix("_reference")
        assert kernel in functions
        tests = (ROOT / "tests/kernels" / f"test_{path.stem}.py").read_text(encoding="utf-8")
        assert kernel in tests
        assert name in tests or '"_reference"' in tests
