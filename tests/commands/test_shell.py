"""Commands in any shell: pipes, signals, locales, homes, terminals. All of it is the real thing."""

import ast
import contextlib
import fcntl
import json
import os
import pty
import re
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
import warnings
from pathlib import Path

import pytest

import jmarl
from jmarl.commands import arguments
from jmarl.commands.arguments import renamed
from jmarl.commands.train import parse
from jmarl.config.train_config import build
from jmarl.errors import ConfigError
from jmarl.runs import directory as run_dir
from jmarl.runs.files import read_lines
from jmarl.runs.progress import fitted
from jmarl.runs.signals import Interruption
from jmarl.runs.terminal import encodable
from jmarl.runs.user_dirs import base_directory
from tests.support.programs import cache

ROOT = Path(__file__).parents[2]
TINY = [
    *("--algorithm", "ippo", "--num-envs", "4", "--rollout-length", "5", "--total-updates", "3"),
    *("--log-every", "1", "--eval-episodes", "4", "--net.hidden", "8", "--devices", "1"),
    *("--ppo.num-minibatches", "1", "--ppo.epochs", "1", "--no-tensorboard", "--no-gif"),
]
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
NAME = "my rün"


def environment(**changes):
    """This process's own, with changes; None takes a variable away."""
    plain = ("PYTHONUTF8", "PYTHONIOENCODING", "COLUMNS", "NO_COLOR", "FORCE_COLOR")
    found = {name: value for name, value in os.environ.items() if name not in plain}
    found |= {"PYTHONPATH": str(ROOT), "LC_ALL": "C.UTF-8", **changes}
    return {name: value for name, value in found.items() if value is not None}


def command(module, *arguments):
    return [sys.executable, "-m", f"jmarl.{module}", *map(str, arguments)]


def run(line, cwd, **changes):
    """A command, or a line for bash."""
    line = ["bash", "-c", line] if isinstance(line, str) else line
    return subprocess.run(
        line,
        capture_output=True,
        encoding="utf-8",
        cwd=cwd,
        env=environment(**changes),
        timeout=300,
    )


@pytest.fixture(scope="module")
def piped(tmp_path_factory):
    """A run whose reader went away after a line, in a directory with a space and an umlaut."""
    cwd = tmp_path_factory.mktemp("a ß")
    train = shlex.join(command("train", *TINY, "--run-dir", NAME))
    done = run(f"{train} | head -1; echo ${{PIPESTATUS[0]}}", cwd, **cache())
    return cwd, done


@pytest.mark.long
def test_training_goes_on_when_nobody_reads(piped):
    cwd, done = piped
    assert done.stdout.splitlines() == ["compiling …", "0"]
    assert done.stderr == ""
    assert json.loads((cwd / NAME / "summary.json").read_text(encoding="utf-8"))["finished"]
    assert (cwd / NAME / "checkpoints" / "update_3").is_dir()


@pytest.mark.parametrize(
    "words",
    [
        ("evaluate", NAME, "--episodes=4", "--json=scores.json"),
        ("report", NAME, "--replays", "0"),
        ("train", "--help"),
    ],
)
def test_other_commands_end_well_when_nobody_reads(piped, words):
    cwd, _ = piped
    done = run(f"({shlex.join(command(*words))}; echo $? >&2) | true", cwd, **cache())
    assert done.stderr == "0\n"
    if words[0] == "evaluate":
        assert json.loads((cwd / "scores.json").read_text(encoding="utf-8"))["rows"]


def test_a_full_disk_under_the_screen_is_told_of(piped):
    done = run(f"{shlex.join(command('report', '--help'))} > /dev/full", piped[0])
    assert done.returncode == 1
    assert done.stderr == "standard output could not be written: No space left on device.\n"


@pytest.mark.long
def test_commands_to_copy_are_quoted(piped):
    cwd, _ = piped
    resumed = run(command("train", f"--resume={NAME}", "--total-updates=4"), cwd, **cache())
    assert resumed.returncode == 0, resumed.stderr
    assert f"more: python -m jmarl.train --resume '{NAME}' --total-updates 8" in resumed.stdout
    with pytest.raises(ConfigError, match=f"continue it with --resume '.*{NAME}'"):
        run_dir.create(build({"run_dir": cwd / NAME}))


@pytest.mark.parametrize(
    "words", [["--run-dir", "b"], ["--run-dir=b"], ["--run_dir", "b", "--total-updates=9"]]
)
def test_a_resumed_run_stays_in_its_directory(words):
    for resume in (["--resume", "a"], ["--resume=a"]):
        with pytest.raises(ConfigError, match="run_dir='b' cannot go with --resume a: a resumed"):
            parse([*resume, *words])


@pytest.mark.parametrize("words", [["--json", "x"], ["--json=x"], ["--json-path=x"]])
def test_options_are_read_with_and_without_an_equals_sign(words):
    assert renamed(words, {"--json": "--json-path"}) in (["--json-path", "x"], ["--json-path=x"])


@pytest.mark.long
def test_an_ascii_locale_is_enough(piped, tmp_path):
    """Also: no home directory that can be written, and a relative cache directory."""
    own = ASCII | {"HOME": "/proc", "XDG_CACHE_HOME": "relative"}
    done = run(command("train", *TINY, "--run-dir", "x"), tmp_path, **own)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("compiling ...\n")
    done = run(command("report", "x", "--replays", "0"), tmp_path, **own)
    assert (done.returncode, done.stderr) == (0, "")
    assert "–" in (tmp_path / "x" / "report.html").read_text(encoding="utf-8")
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
    done = run(command("train", "--ppo.clip-ep", "1"), tmp_path, **own)
    assert "did you mean --ppo.clip-eps?" in done.stderr
    refused = run(command("evaluate", NAME), piped[0], **own)
    assert refused.returncode == 2
    assert "Set PYTHONUTF8=1" in refused.stderr


@pytest.mark.long
def test_a_sweep_and_help_in_ascii(tmp_path):
    base = "num_envs=4 rollout_length=5 total_updates=2 algorithm=ippo eval_episodes=4"
    swept = ["--base", *base.split(), "ppo.num_minibatches=1", "--grid", "lr=1e-3,1e-4"]
    options = [*swept, "--seeds", "2", "--sweep-dir", "my sweep"]
    done = run(command("sweep", *options), tmp_path, PYTHONIOENCODING="ascii", **cache())
    assert (done.returncode, done.stderr) == (0, "")
    assert "compiling ..." in done.stdout
    assert "the best again: python -m jmarl.train 'my sweep/best.yaml'" in done.stdout
    assert " … " in (tmp_path / "my sweep" / "ranking.md").read_text(encoding="utf-8")
    for module in ("train", "sweep"):
        done = run(command(module, "--help"), tmp_path, PYTHONIOENCODING="ascii")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.isascii()
        assert "+-" in done.stdout


@pytest.mark.long
@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None,
    reason="only root can become a user without a passwd entry",
)
def test_a_user_without_a_home(tmp_path):
    """As in containers: no HOME, and nobody in passwd has this number."""
    may = "+dac_override"  # Python and the tests may lie where only root can read
    someone = ["--reuid", "54321", "--regid", "54321", "--clear-groups"]
    stranger = ["setpriv", *someone, "--inh-caps", may, "--ambient-caps", may]
    nowhere = {"HOME": None, "XDG_CACHE_HOME": None, "XDG_CONFIG_HOME": None}
    ask = [sys.executable, "-c", "import pathlib; pathlib.Path.home()"]
    home = run([*stranger, *ask], tmp_path, **nowhere)
    assert "Could not determine home directory" in home.stderr
    done = run([*stranger, *command("train", *TINY, "--run-dir", "x")], tmp_path, **nowhere)
    assert (done.returncode, done.stderr) == (0, "")
    draw = command("report", "x", "--no-html", "--svg", "drawn")
    done = run([*stranger, *draw], tmp_path, **nowhere)
    assert (done.returncode, done.stderr) == (0, "")
    assert list((tmp_path / "drawn").glob("*.svg"))


def test_base_directories_follow_the_specification(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    for unset in ("", "relative/cache"):
        monkeypatch.setenv("XDG_CACHE_HOME", unset)
        assert base_directory("XDG_CACHE_HOME", ".cache") == tmp_path / ".cache"
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert base_directory("XDG_CACHE_HOME", ".cache") == Path("/elsewhere")


def test_a_damaged_cache_is_one_sentence_however_many_entries_it_has(capsys):
    with arguments.command():
        warnings.simplefilter("always")  # here, pytest makes errors of them
        for name in ("jit_step", "jit_play"):
            warnings.warn(
                f"Error reading persistent compilation cache entry for '{name}': Error -5",
                stacklevel=1,
            )
        warnings.warn("another", stacklevel=1)
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("the cache of compiled programs cannot be used")
    assert (first.count("jit_step"), second) == (1, "another")


def test_what_a_stream_cannot_encode_is_written_in_ascii():
    text = "−1 × 2 … “ä” │╭─╮│ ⠋"
    assert encodable(text, "utf-8") == text
    assert encodable(text, "ascii") == '-1 x 2 ... "\\xe4" |+-+| *'
    assert encodable(text, "latin-1") == '-1 × 2 ... "ä" |+-+| *'
    assert encodable("a\udcff…", "ascii", "surrogateescape") == "a\udcff..."


# --- terminals


# In the new process, because Python code between fork and exec may deadlock where jax has threads.
# The tests may run under nohup.
IN_TERMINAL = """
import fcntl, os, signal, sys, termios
signal.signal(signal.SIGHUP, signal.SIG_DFL)
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


@contextlib.contextmanager
def terminal(columns, words, cwd, **changes):
    """A command in a pseudo-terminal that is its own: (its process, the other end)."""
    ours, theirs = pty.openpty()
    resize(ours, columns)

    env = environment(**{"TERM": "xterm", **changes})
    process = subprocess.Popen(
        [sys.executable, "-c", IN_TERMINAL, *words],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=cwd,
        env=env,
        start_new_session=True,
    )
    os.close(theirs)
    with process:
        yield process, ours


def resize(end, columns):
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))


def chunks(end):
    """What the command writes, with the time at which it came."""
    with contextlib.suppress(OSError):  # EIO: the command has ended
        while written := os.read(end, 65536):
            yield time.monotonic(), written.decode(errors="replace")


def frames(text):
    """The states of a line that is redrawn, without escape sequences."""
    return re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text))


@pytest.mark.long
def test_narrow_terminals_show_the_bar_the_updates_and_the_time_left(tmp_path):
    words = command("train", *TINY, "--total-updates", "400", "--run-dir", "x")
    seen, now = {80: "", 60: ""}, 80
    with terminal(now, words, tmp_path, **cache()) as (process, end):
        for _, text in chunks(end):
            seen[now] += text
            if now == 80 and "0:00" in seen[80] and " steps/s" in seen[80]:
                now = 60
                resize(end, now)
    assert process.returncode == 0
    always = r"training [━╸╺]{10} \d+/400 updates (-:--:--|\d:\d\d:\d\d)"
    for columns, metrics in ((80, " return -?[0-9.]+  [0-9,]+ steps/s"), (60, " return -?[0-9.]+")):
        lines = [line.strip() for line in frames(seen[columns]) if "training" in line]
        assert all(re.match(always, line) for line in lines[:-1]), lines  # the last may be cut off
        assert any(re.fullmatch(always + metrics, line) for line in lines), lines


def test_metrics_go_where_there_is_no_room():
    parts = ["return -45.2", "1,234 steps/s", "policy loss 0.001"]
    assert fitted(parts, 100) == "return -45.2  1,234 steps/s  policy loss 0.001"
    assert fitted(parts, 30) == "return -45.2  1,234 steps/s"
    assert fitted(parts, 11) == ""


@pytest.mark.long
def test_a_dumb_terminal_gets_lines_as_they_come(tmp_path):
    """Also: a cache that the user has set up for jax counts more than ours."""
    caches = {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "theirs"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "XDG_CACHE_HOME": str(tmp_path / "ours"),
    }
    words = command("train", *TINY, "--run-dir", "x")
    with terminal(80, words, tmp_path, TERM="dumb", **caches) as (process, end):
        came = list(chunks(end))
    assert process.returncode == 0
    text = "".join(text for _, text in came)
    assert text.startswith("compiling …\r\ndevices: 1 (cpu)\r\nupdate 0/3  return")
    assert came[-1][0] - came[0][0] > 0.5
    assert list((tmp_path / "theirs").iterdir())
    assert not (tmp_path / "ours").exists()


# --- signals


@pytest.mark.long
def test_a_terminal_that_closes_leaves_a_checkpoint(tmp_path):
    """SIGHUP, and nowhere left to write to."""
    words = command("train", *TINY, "--total-updates", "100000", "--run-dir", "x")
    with terminal(80, words, tmp_path, **cache()) as (process, end):
        os.set_blocking(end, False)
        while process.poll() is None and not read_lines(tmp_path / "x" / "metrics.jsonl"):
            with contextlib.suppress(BlockingIOError):
                os.read(end, 65536)
            time.sleep(0.01)
        os.close(end)
        process.wait(timeout=60)
    assert process.returncode == 129
    summary = json.loads((tmp_path / "x" / "summary.json").read_text(encoding="utf-8"))
    assert not summary["finished"]
    assert (tmp_path / "x" / "checkpoints" / f"update_{summary['updates']}").is_dir()


@pytest.fixture
def hangups():
    """The SIGHUPs that nothing holds back; by default they would kill this process."""
    came = []
    before = signal.signal(signal.SIGHUP, lambda number, frame: came.append(number))
    yield came
    signal.signal(signal.SIGHUP, before)


def test_a_second_hangup_does_not_kill(hangups):
    interruption, before = Interruption(), signal.getsignal(signal.SIGTERM)
    with interruption.watched():
        signal.raise_signal(signal.SIGHUP)
        signal.raise_signal(signal.SIGHUP)
        assert signal.getsignal(signal.SIGTERM) == before  # no longer held back
    assert interruption.signal == signal.SIGHUP
    assert not hangups
    signal.raise_signal(signal.SIGHUP)
    assert hangups == [signal.SIGHUP]


def test_under_nohup_hangups_stay_ignored(hangups):
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    interruption = Interruption()
    with interruption.watched():
        signal.raise_signal(signal.SIGHUP)
    assert interruption.signal is None


def test_signals_are_left_alone_in_other_threads():
    before, inside = signal.getsignal(signal.SIGTERM), []

    def watch():
        with Interruption().watched():
            inside.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=watch)
    thread.start()
    thread.join()
    assert inside == [before]


# --- from Python


@pytest.mark.long
def test_training_from_python_leaves_jax_and_the_disk_alone(tmp_path):
    """In a thread, as a notebook or a server may do it."""
    code = """
import json, threading
import jax, jmarl
from jmarl.config.train_config import build
before = dict(jax.config.values)
tiny = build({
    "algorithm": "ippo", "num_envs": 4, "rollout_length": 5, "total_updates": 2, "log_every": 1,
    "eval_episodes": 4, "net": {"hidden": [8]}, "ppo": {"epochs": 1, "num_minibatches": 1},
})
thread = threading.Thread(target=jmarl.train, args=[tiny])
thread.start()
thread.join()
print("now quiet")
outcome = jmarl.train(tiny, total_updates=1, quiet=True, ppo={"epochs": 2})
print(outcome.update, dict(jax.config.values) == before)
"""
    home = tmp_path / "home"
    home.mkdir()
    done = run([sys.executable, "-c", code], tmp_path, HOME=str(home), XDG_CACHE_HOME=None)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "compiling …"
    assert lines[1] == "devices: 1 (cpu)"
    assert lines[2].startswith("update 0/2  return")
    assert lines[-2:] == ["now quiet", "1 True"]
    assert list(tmp_path.rglob("*")) == [home]


def test_training_in_memory_has_no_place_for_a_log():
    with pytest.raises(ConfigError, match="wandb=True needs a directory"):
        jmarl.train(algorithm="ippo", total_updates=1, wandb=True)


# --- directories and files


def test_starts_at_the_same_time_get_directories_of_their_own(tmp_path):
    code = (
        "import sys; from pathlib import Path\n"
        "from jmarl.config.train_config import build; from jmarl.runs.directory import create\n"
        "config = build({}); Path(sys.argv[1]).touch()\n"
        "while not Path('go').exists(): pass\n"
        "for _ in range(25): print(create(config))"
    )
    pipes = {"stdout": subprocess.PIPE, "cwd": tmp_path, "env": environment(), "encoding": "utf-8"}
    starts = [subprocess.Popen([sys.executable, "-c", code, f"{i}"], **pipes) for i in range(4)]
    while len(list(tmp_path.iterdir())) < 4:
        time.sleep(0.01)
    (tmp_path / "go").touch()
    made = "".join(start.communicate(timeout=60)[0] for start in starts).splitlines()
    assert [start.returncode for start in starts] == [0] * 4
    names = {"mat-mpe-simple_spread-0", *(f"mat-mpe-simple_spread-0-{n}" for n in range(1, 100))}
    assert sorted(made) == sorted(f"runs/{name}" for name in names)


def test_only_our_own_commit_is_recorded(tmp_path):
    """Not that of a repository in which jmarl is merely installed."""
    site = tmp_path / "venv" / "site-packages"
    shutil.copytree(ROOT / "jmarl", site / "jmarl", ignore=shutil.ignore_patterns("__pycache__"))
    who = "-c user.name=a -c user.email=a@b.c"
    commit = f"git {who} commit -q --allow-empty -m x"
    made = run(f"git init -q && {commit}", tmp_path)
    assert made.returncode == 0, made.stderr
    ask = [sys.executable, "-c", "from jmarl.runs.directory import own_commit; print(own_commit())"]
    assert run(ask, tmp_path, PYTHONPATH=str(site)).stdout == "None\n"
    hook = str(tmp_path / ".git")  # git tells hooks where their repository is
    ours = subprocess.run(
        ["git", "-C", ROOT, "rev-parse", "HEAD"], capture_output=True, encoding="utf-8"
    )
    expected = ours.stdout if (ROOT / ".git").exists() else "None\n"
    assert run(ask, tmp_path, GIT_DIR=hook).stdout == expected


def test_text_files_are_utf8_by_our_own_hand():
    """Whatever the locale: every text file that is opened names its encoding."""
    sources = [path for part in ("jmarl", "benchmarks") for path in (ROOT / part).rglob("*.py")]
    calls = [
        (path, call)
        for path in sources
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call)
    ]
    assert sum(_opens_text(call) for _, call in calls) > 15
    for path, call in calls:
        named = {keyword.arg for keyword in call.keywords}
        place = f"{path.relative_to(ROOT)}:{call.lineno}"
        assert not _opens_text(call) or "encoding" in named, f"{place} names no encoding"
        assert not {"text", "universal_newlines"} & named, f"{place} has the locale's encoding"


def _opens_text(call):
    """Whether a call reads or writes text: `read_text`, `write_text`, and `open` with a mode that
    is a constant and not binary."""
    function = call.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    if name in ("read_text", "write_text"):
        return True
    modes = [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg == "mode")]
    found = [mode.value for mode in modes if isinstance(mode, ast.Constant)]
    return name == "open" and any(re.fullmatch("[rwax]t?[+]?", str(mode)) for mode in found)
