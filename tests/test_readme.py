"""The README's Python runs as printed; its commands are those that exist."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
PYTHON = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize("code", PYTHON, ids=range(len(PYTHON)))
def test_python_blocks_run(code, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    promised = re.search(r"print\(.*\)  # about (-?\d+)", code)
    if promised:
        shown = float(re.findall(r"-?\d+\.\d+", done.stdout)[-1])
        assert abs(shown - float(promised[1])) < 1
    exact = re.search(r"print\(.*\)  # (\(.*\))", code)
    if exact:
        assert exact[1] in done.stdout


def test_every_module_that_is_named_as_a_command_exists():
    commands = set(re.findall(r"python -m ([\w.]+)", README))
    assert commands
    for module in commands:
        shown = subprocess.run(
            [sys.executable, "-m", module, "--help"], capture_output=True, text=True, cwd=ROOT
        )
        assert shown.returncode == 0, shown.stderr
        assert "usage" in shown.stdout.lower()


def test_worlds_named_in_the_table_can_be_made():
    import jax

    import jmarl

    named = set(re.findall(r"`((?:mpe|probe|gymnax)/[\w-]+)`", README))
    assert len(named) > 12
    with jax.numpy_rank_promotion("allow"):
        for name in named:
            assert jmarl.make(name).spec.name == name
