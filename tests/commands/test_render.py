"""python -m jmarl.render, as it is typed."""

import io
from functools import partial

import pytest
from PIL import Image

from jmarl.commands import render
from tests.support.tiny_runs import configured, go

FRAMES = 26  # an episode has 25 steps
HOSTILE = "<img src=x onerror=alert(1)>"  # a directory may be called so


def opened(path):
    return Image.open(io.BytesIO(path.read_bytes()))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("run") / HOSTILE
    go(configured(path, total_updates=2, gif=True))
    return path


@pytest.fixture
def command(called):
    return partial(called, render)


def test_a_run_ends_with_the_picture_that_is_drawn_of_its_best_checkpoint(command, run, tmp_path):
    drawn = (run / "replay.gif").read_bytes()
    code, said = command(run, "--episodes", 1, "--no-html", "--gif", tmp_path / "again.gif")
    assert code == 0, said
    assert (tmp_path / "again.gif").read_bytes() == drawn


def test_a_run_is_rendered_into_its_own_directory(command, run):
    code, said = command(run)
    assert code == 0, said
    assert "replay.gif" in said
    assert "replay.html" in said
    picture = opened(run / "replay.gif")
    assert picture.n_frames == FRAMES
    assert picture.info["duration"] == 120  # GIF counts hundredths of a second
    assert (run / "replay.gif").stat().st_size < 1_000_000
    page = (run / "replay.html").read_text(encoding="utf-8")
    assert "mpe/simple_spread" in page
    assert "&lt;img src=x" in page
    assert "<img" not in page


def test_options_choose_what_goes_where(command, run, tmp_path):
    one, grid, site = tmp_path / "one.gif", tmp_path / "grid.gif", tmp_path / "a.html"
    assert command(run, "--gif", one, "--no-html", "--episodes", 2, "--fps", 20)[0] == 0
    assert command(run, "--gif", grid, "--no-html", "--episodes", 2, "--grid")[0] == 0
    assert command(run, "--no-gif", "--html", site, "--which", "latest", "--sampled")[0] == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.html", "grid.gif", "one.gif"]
    first, both = opened(one), opened(grid)
    assert first.info["duration"] == 50
    assert both.n_frames == FRAMES
    assert both.width > first.width
    assert "latest checkpoint, actions drawn" in site.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere"], "not a run"),
        (["RUN", "--no-gif", "--no-html"], "nothing to write"),
        (["RUN", "--episodes", "0"], "episodes=0"),
        (["RUN", "--episodes", "17", "--grid"], "16 do"),
        (["RUN", "--fps", "0"], "fps=0"),
        (["RUN", "--wich", "best"], "--which"),
    ],
)
def test_refusals_are_one_sentence(command, run, arguments, words):
    code, said = command(*(run if a == "RUN" else a for a in arguments))
    assert code == 2
    assert words in said
    assert len(said.strip().splitlines()) == 1


def test_runs_that_cannot_be_shown_say_why(command, run, tmp_path):
    config = (run / "config.yaml").read_text(encoding="utf-8")
    kinds = {
        "begun": config,
        "seeds": config.replace("seeds: 1", "seeds: 2"),
        "elsewhere": config.replace("mpe/simple_spread", "probe/context"),
    }
    for name, text in kinds.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.yaml").write_text(text, encoding="utf-8")
    member = tmp_path / "sweep" / "member_000"
    member.mkdir(parents=True)
    (member / "member.json").write_text('{"group": "../group_0", "member": 0}', encoding="utf-8")
    (member / "config.yaml").write_text(config, encoding="utf-8")
    for name, words in (
        ("begun", "no checkpoints yet"),
        ("seeds", "choose one of them, such as"),
        ("sweep", "choose one of them, such as"),
        ("sweep/member_000", "no checkpoints yet"),
        ("elsewhere", "no checkpoints yet"),
    ):
        code, said = command(tmp_path / name)
        assert code == 2
        assert words in said
        assert len(said.strip().splitlines()) == 1


def test_a_place_that_cannot_be_written_is_named(command, run, tmp_path):
    code, said = command(run, "--no-html", "--episodes", 1, "--gif", tmp_path / "no" / "x.gif")
    assert code == 1
    assert "no/x.gif" in said
