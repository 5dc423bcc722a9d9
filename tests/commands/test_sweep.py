"""`python -m jmarl.sweep` as a user meets it; how members are run is another module's."""

import subprocess
import sys
import types
import warnings

import pytest

from jmarl.commands.sweep import CommandLine, main
from jmarl.config.declaration import fields_of
from jmarl.errors import RunError
from tests.support.sweep_files import write_sweep


def test_a_refusal_is_one_message_and_leaves_nothing_behind(tmp_path):
    command = [sys.executable, "-m", "jmarl.sweep", "--grid", "gamma=0.5,3"]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", cwd=tmp_path, timeout=100)
    assert done.returncode == 2
    assert done.stderr.startswith("with ppo.gamma=3: ppo.gamma=3 is refused")
    assert len(done.stderr.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_help_explains_every_option(swept, capsys):
    with pytest.raises(SystemExit) as stopped:
        swept("--help")
    assert stopped.value.code == 0
    text = capsys.readouterr().out
    for name, info in fields_of(CommandLine):
        assert f"--{name.replace('_', '-')}" in text
        assert info.description


@pytest.fixture
def swept(monkeypatch, tmp_path):
    """The command, where running members takes no time."""

    def command(*arguments, stopped_by=None, fault=None):
        def run_sweep(sweep, plan, console):
            del sweep, console
            if fault is not None:
                raise fault
            write_sweep(tmp_path, plan, [[-9.0, -float(m.index)] for m in plan.members])
            return types.SimpleNamespace(path=tmp_path, stopped_by=stopped_by)

        module = types.ModuleType("jmarl.sweeps.run")
        monkeypatch.setattr(module, "run_sweep", run_sweep, raising=False)
        monkeypatch.setitem(sys.modules, "jmarl.sweeps.run", module)
        monkeypatch.setattr(sys, "argv", ["jmarl.sweep", *arguments])
        main()

    return command


@pytest.fixture(autouse=True)
def _warnings_as_before():
    """The command shows warnings in its own way."""
    with warnings.catch_warnings():
        yield


def test_a_sweep_ends_with_its_ranking(swept, tmp_path, capsys):
    swept("--grid", "lr=1e-3,2e-3", "--base", "total_updates=1")
    out = capsys.readouterr().out
    assert "ppo.lr" in out
    assert f"the best again: python -m jmarl.train {tmp_path / 'best.yaml'}" in out.replace(
        "\n", ""
    )
    names = {path.name for path in tmp_path.iterdir()}
    assert {"ranking.json", "ranking.csv", "ranking.md", "members.jsonl", "best.yaml"} <= names
    assert {path.name for path in (tmp_path / "plots").iterdir()} == {
        "marginal_ppo.lr.png",
        "curves.png",
    }


def test_pictures_can_be_left_out(swept, tmp_path):
    swept("--seeds", "2", "--no-plots")
    assert (tmp_path / "best.yaml").exists()
    assert not (tmp_path / "plots").exists()


def test_a_stopped_sweep_says_how_it_goes_on(swept, tmp_path, capsys):
    with pytest.raises(SystemExit) as stopped:
        swept("--seeds", "2", stopped_by=15)
    assert stopped.value.code == 143
    assert f"go on: python -m jmarl.sweep --resume {tmp_path}" in capsys.readouterr().out
    assert not (tmp_path / "best.yaml").exists()


@pytest.mark.parametrize("fault", [RunError("it broke"), OSError("it broke")])
def test_a_sweep_that_cannot_go_on_says_why(swept, capsys, fault):
    with pytest.raises(SystemExit) as stopped:
        swept("--seeds", "2", fault=fault)
    assert stopped.value.code == 1
    assert capsys.readouterr().err == "it broke\n"
