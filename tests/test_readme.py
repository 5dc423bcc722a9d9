"""The Python of README.md and docs/ runs as printed; their commands and links exist."""

import functools
import json
import re
import runpy
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from tests.support.long import all_but_long
from tests.support.programs import cached

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
TEXTS = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in PAGES}
EVERYTHING = "\n\n".join(TEXTS.values())
# whole files, which tests/test_examples.py runs
EXAMPLES = {path.read_text(encoding="utf-8") for path in (ROOT / "docs/examples").glob("*.py")}
PYTHON = {
    f"{page}-{i}": code
    for page, text in TEXTS.items()
    for i, code in enumerate(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    if code not in EXAMPLES
}
# Each with names and a directory of its own, those of a page in one process, because it takes
# seconds to import jax.
RUN_BLOCKS = """
import contextlib, io, json, os, sys, tempfile, traceback
done, here = {}, os.getcwd()
for name, code in json.load(sys.stdin).items():
    os.chdir(tempfile.mkdtemp(dir=here))
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        try:
            exec(compile(code, name, "exec"), {"__name__": "__main__"})
            error = ""
        except BaseException:
            error = traceback.format_exc()
    done[name] = shown.getvalue(), error
print(json.dumps(done))
"""


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """`printed(page)`: what each block of a page prints, and its error."""

    @functools.cache
    def run(page):
        given = {name: code for name, code in PYTHON.items() if name.startswith(f"{page}-")}
        done = subprocess.run(
            [sys.executable, "-c", RUN_BLOCKS],
            input=json.dumps(given),
            capture_output=True,
            encoding="utf-8",
            timeout=600,
            cwd=tmp_path_factory.mktemp("blocks"),
            env=cached(),
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return run


@pytest.mark.parametrize(
    "name", all_but_long(PYTHON, *(name for name in PYTHON if name.startswith("README.md-")))
)
def test_python_blocks_run(name, printed):
    code, (shown, error) = PYTHON[name], printed(name.rpartition("-")[0])[name]
    assert not error
    promised = re.search(r"print\(.*\)  # about (-?\d+)", code)
    if promised:
        number = float(re.findall(r"-?\d+\.\d+", shown)[-1])
        assert abs(number - float(promised[1])) < 1
    exact = re.search(r"print\(.*\)  # (\(.*\))", code)
    if exact:
        assert exact[1] in shown


def test_every_module_that_is_named_as_a_command_exists(monkeypatch, capsys):
    commands = set(re.findall(r"python -m ([\w.]+)", EVERYTHING))
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
    """Arguments of the pages' commands of that module, except those that need an existing run."""
    text = EVERYTHING.replace("\\\n", " ")
    found = re.findall(rf"python -m {re.escape(command)}((?: +[^\s`#;&)\"]+)*)", text)
    return {
        line.strip()
        for line in found
        if not re.search("resume|--help|--list|runs/|best.yaml", line)
    }


@pytest.mark.usefixtures("registry")
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

    named = set(re.findall(r"`((?:mpe|probe|gymnax)/[\w-]+)`", EVERYTHING))
    assert len(named) > 12
    with jax.numpy_rank_promotion("allow"):
        for name in named:
            assert jmarl.make(name).spec.name == name


def test_the_readme_is_short_and_begins_with_its_two_commands():
    lines = TEXTS["README.md"].splitlines()
    assert len(lines) <= 160
    commands = [line for line in lines if line.startswith(("pip ", "python "))]
    assert commands[0] == "pip install -e . && python -m jmarl.train"
    assert commands[1] == 'pip install -e ".[test]" && pytest'  # .ci/run runs this line


@pytest.mark.parametrize("page", TEXTS)
def test_links_and_pictures_exist(page):
    targets = re.findall(r"\]\(([^)#]+)\)", TEXTS[page])
    local = [target for target in targets if "://" not in target]
    missing = [target for target in local if not (ROOT / page).parent.joinpath(target).is_file()]
    assert missing == []


def test_the_readme_and_the_index_list_every_page():
    for page in ("README.md", "docs/README.md"):
        for path in (ROOT / "docs").glob("*.md"):
            assert path.name == "README.md" or f"{path.name})" in TEXTS[page]
