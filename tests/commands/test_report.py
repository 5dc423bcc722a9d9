"""python -m jmarl.report, as it is typed."""

import os
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
from PIL import Image

from jmarl.commands import report
from tests.support.report_files import config_of, evaluated, write_lines, write_run


@pytest.fixture
def command(called, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    return partial(called, report)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two settings, one of two seeds; names and options that mean no good to figures."""
    folder = tmp_path_factory.mktemp("runs")
    for seed, score in enumerate((-4.0, -6.0)):
        write_run(folder / f"a{seed}", config_of(seed), [-20.0, -9.0, score])
    odd = config_of(algorithm="_$\\frac$ 雪 <b>")
    write_run(folder / "b", odd, [-20.0, -8.0, -7.0], finished=False)
    return folder


def test_the_command_as_a_user_types_it(runs, tmp_path):
    """Without replays it imports neither jax nor matplotlib."""
    code = (
        "import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_module('jmarl.report', "
        "run_name='__main__'); print([m for m in ('jax', 'matplotlib') if m in sys.modules])"
    )
    arguments = ["jmarl.report", str(runs / "a0"), str(runs / "b"), "--no-replays"]
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        encoding="utf-8",
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr
    assert "report.html (" in done.stdout
    assert " kB)" in done.stdout
    assert done.stdout.strip().endswith("[]")
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<title>a0, b</title>" in page


def test_a_single_directory_keeps_its_own_report(command, tmp_path):
    run = write_run(tmp_path / "only", config_of(), [1.0, 2.0])
    code, said = command(run, "--no-replays")
    assert code == 0, said
    assert (run / "report.html").is_file()
    assert not (tmp_path / "report.html").exists()


def test_worlds_that_cannot_be_drawn_and_missing_checkpoints_are_told(command, tmp_path):
    one = write_run(tmp_path / "one", config_of(), [1.0, 2.0])
    two = write_run(tmp_path / "two", config_of(env="mpe/simple_spread"), [1.0, 2.0])
    code, said = command(one, two, "--html", tmp_path / "x.html", "--replays", 2)
    assert code == 0, said
    page = (tmp_path / "x.html").read_text(encoding="utf-8")
    assert "probe/constant cannot be drawn" in page
    assert "two' has no checkpoints yet" in page


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere"], "there is no directory 'nowhere'"),
        (["RUNS/a0", "nowhere", "--no-replays"], "there is no directory 'nowhere'"),
        (["EMPTY"], "is not a run"),
        (["NEW"], "nothing to show yet"),
        (["RUNS", "--no-html"], "nothing to write"),
        (["RUNS", "--replays", "-1"], "replays=-1"),
        (["RUNS", "--episodes", "0"], "episodes=0"),
        (["RUNS", "--repays", "1"], "--replays"),
        (["RUNS", "--against", "hope"], "--against"),
    ],
)
def test_refusals_are_one_sentence(command, runs, tmp_path, arguments, words):
    (tmp_path / "empty").mkdir()
    write_run(tmp_path / "new", config_of(), updates=0, finished=False)
    places = {"RUNS": runs, "RUNS/a0": runs / "a0", "EMPTY": "empty", "NEW": "new"}
    code, said = command(*(places.get(word, word) for word in arguments))
    assert code == 2
    assert words in said
    assert len(said.strip().splitlines()) == 1
    assert not list(tmp_path.glob("**/*.html"))


def test_without_a_run_help_is_shown(command):
    code, said = command()
    assert code == 0
    assert "--replays" in said
    assert "--svg" in said


def test_a_place_that_cannot_be_written_is_named(command, runs, tmp_path):
    code, said = command(runs, "--no-replays", "--html", tmp_path / "no" / "x.html")
    assert code == 1
    assert "no/" in said
    (tmp_path / "file").write_text("", encoding="utf-8")
    code, said = command(runs, "--no-html", "--png", tmp_path / "file")
    assert code == 1
    assert "file" in said


def test_figures_are_one_file_a_metric_and_not_blank(command, runs, tmp_path):
    code, said = command(runs, "--no-html", "--png", tmp_path / "p", "--svg", tmp_path / "s")
    assert code == 0, said
    names = {
        *("eval_return_mean", "eval_sampled_return_mean", "charts_SPS", "losses_policy_loss"),
        *("losses_value_loss", "losses_entropy", "losses_approx_kl", "losses_clipfrac"),
        "losses_explained_variance",
    }
    assert {path.stem for path in (tmp_path / "p").iterdir()} == names
    assert {path.name for path in (tmp_path / "s").iterdir()} == {f"{n}.svg" for n in names}
    picture = np.asarray(Image.open(tmp_path / "p" / "eval_return_mean.png").convert("RGB"))
    pixels = set(map(tuple, picture.reshape(-1, 3)))
    assert {(0x00, 0x72, 0xB2), (0xD5, 0x5E, 0x00)} <= pixels  # the first two curves
    vector = (tmp_path / "s" / "eval_return_mean.svg").read_text(encoding="utf-8")
    assert "#0072b2" in vector
    assert "#d55e00" in vector
    assert "<b>" not in vector


def test_figures_of_several_worlds_have_their_names(command, runs, tmp_path):
    other = write_run(tmp_path / "o", config_of(env="mpe/simple_tag"))
    write_lines(other / "evals.jsonl", [evaluated(1, 1.0, **{"eval/return_mean/../x": 3.0})])
    (other / "metrics.jsonl").unlink()
    code, said = command(other, runs / "a0", "--no-html", "--png", tmp_path / "p", "--against=time")
    assert code == 0, said
    names = {path.name for path in (tmp_path / "p").iterdir()}
    assert "mpe_simple_tag.eval_return_mean.png" in names
    assert "probe_constant.eval_return_mean.png" in names
    assert "mpe_simple_tag.charts_SPS.png" not in names
    assert len(names) == 3 + 9
    assert sorted(path.name for path in tmp_path.iterdir()) == ["o", "p"]
