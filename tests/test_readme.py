"""The README's Python runs as printed; its commands are those that exist."""

import re
import runpy
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
PYTHON = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize("code", PYTHON, ids=range(len(PYTHON)))
def test_python_blocks_run(code, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        encoding="utf-8",
        timeout=300,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    promised = re.search(r"print\(.*\)  # about (-?\d+)", code)
    if promised:
        shown = float(re.findall(r"-?\d+\.\d+", done.stdout)[-1])
        assert abs(shown - float(promised[1])) < 1
    exact = re.search(r"print\(.*\)  # (\(.*\))", code)
    if exact:
        assert exact[1] in done.stdout


def test_every_module_that_is_named_as_a_command_exists(monkeypatch, capsys):
    commands = set(re.findall(r"python -m ([\w.]+)", README))
    assert commands
    monkeypatch.chdir(ROOT)
    for module in sorted(commands):
        monkeypatch.setattr(sys, "argv", [module, "--help"])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it is loaded already
            with pytest.raises(SystemExit) as stop:
                runpy.run_module(module, run_name="__main__")
        assert stop.value.code in (None, 0)
        assert "usage" in capsys.readouterr().out.lower()


def typed(command):
    """Arguments of the README's commands of that module that need no run of a user's own."""
    text = README.replace("\\\n", " ")
    found = re.findall(rf"python -m {re.escape(command)}((?: +[^\s`#;&)\"]+)*)", text)
    return {line.strip() for line in found if not re.search("resume|--help|runs/|best.yaml", line)}


def test_commands_are_understood(monkeypatch):
    from jmarl.commands import sweep, train
    from jmarl.sweeps.plan import plan

    monkeypatch.chdir(ROOT)
    runs, sweeps = typed("jmarl.train"), typed("jmarl.sweep")
    assert len(runs) > 3
    assert len(sweeps) > 1
    for line in runs:
        train.parse(line.split())
    for line in sweeps:
        assert len(plan(sweep.parse(line.split())).members) > 1


def test_worlds_named_in_the_table_can_be_made():
    import jax

    import jmarl

    named = set(re.findall(r"`((?:mpe|probe|gymnax)/[\w-]+)`", README))
    assert len(named) > 12
    with jax.numpy_rank_promotion("allow"):
        for name in named:
            assert jmarl.make(name).spec.name == name
