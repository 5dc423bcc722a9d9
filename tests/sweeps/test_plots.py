"""Pictures of sweeps: which there are, and what is on their axes."""

import numpy as np
import pytest
from PIL import Image

from jmarl.sweeps.plots import _axis, _line, write_plots
from jmarl.sweeps.results import write_results
from jmarl.sweeps.scores import rank
from tests.support.sweep_files import planned, write_sweep

BUDGET = {"total_updates": 2}


def drawn(path, made, returns):
    write_sweep(path, made, returns)
    return {picture.name for picture in write_plots(path, made, write_results(path, made))}


def ranked(made, last):
    lines = [{"steps": 6400, "eval/return_mean": float(value)} for value in last]
    return rank(made, lines, [({"update": 0, **m.settings},) for m in made.members]).members


def test_a_grid_has_marginals_pairs_and_curves(tmp_path):
    grid = {"lr": [1e-3, 1e-2], "entropy_coef": [0.0, 1e-3, 0.1], "net.hidden": [[8], [8, 8]]}
    made = planned(base=BUDGET | {"algorithm": "ippo"}, grid=grid, seeds=2)
    returns = [[-9.0, -8.0 + i, -7.0 + i] for i in range(len(made.members))]
    returns[3] = [-9.0, None]
    returns[4] = [-9.0, -8.0]  # stopped early
    names = drawn(tmp_path, made, returns)
    assert names == {
        *("marginal_ppo.lr.png", "marginal_ppo.entropy_coef.png", "marginal_net.hidden.png"),
        "pair_ppo.lr_ppo.entropy_coef.png",
        "pair_ppo.lr_net.hidden.png",
        "pair_ppo.entropy_coef_net.hidden.png",
        "curves.png",
    }
    for name in names:
        with Image.open(tmp_path / "plots" / name) as picture:
            assert np.asarray(picture.convert("L")).std() > 5  # something is on it


def test_draws_are_scattered_and_seeds_alone_are_curves(tmp_path):
    random = {"lr": {"log_uniform": [1e-4, 1e-2]}, "gamma": {"uniform": [0.9, 0.99]}}
    made = planned(base=BUDGET, random=random, samples=14)
    for sweep, names in (
        (made, {"marginal_ppo.lr.png", "marginal_ppo.gamma.png", "pair_ppo.lr_ppo.gamma.png"}),
        (planned(base=BUDGET, seeds=2), set()),
    ):
        path = tmp_path / str(len(names))
        path.mkdir()
        returns = [[-9.0, float(i), 2.0 * i] for i in range(len(sweep.members))]
        assert drawn(path, sweep, returns) == names | {"curves.png"}


def test_where_all_failed_nothing_is_drawn(tmp_path):
    made = planned(base=BUDGET, grid={"lr": [1e-3, 1e-2]})
    assert drawn(tmp_path, made, [[None], [None]]) == set()
    assert not (tmp_path / "plots").exists()


@pytest.mark.parametrize(
    ("name", "values", "kind", "ordered"),
    [
        ("ppo.lr", [1e-2, 1e-3], "log", [1e-3, 1e-2]),
        ("ppo.lr", [2e-3, 1e-3], "linear", [1e-3, 2e-3]),
        ("ppo.entropy_coef", [0.1, 0.0, 0.01], "category", [0.0, 0.01, 0.1]),  # 0 has no log
        ("algorithm", ["mat", "ippo"], "category", ["ippo", "mat"]),
        ("net.hidden", [[128], [64, 64]], "category", [(64, 64), (128,)]),
        ("ppo.clip_apart", [True, False], "category", [False, True]),
    ],
)
def test_axes_suit_their_values(name, values, kind, ordered):
    base = BUDGET if name == "algorithm" else BUDGET | {"algorithm": "ippo"}
    made = planned(base=base, grid={name: values})
    axis = _axis(name, ranked(made, range(len(values))))
    assert (axis.kind, axis.values) == (kind, ordered)
    assert axis.at(ordered[1]) == (1.0 if kind == "category" else ordered[1])


def test_the_line_goes_through_the_middle_of_each_value():
    """Of four seeds the middle two: (2+3)/2 and (20+30)/2."""
    made = planned(base=BUDGET, grid={"gamma": [0.9, 0.5]}, seeds=4)
    scored = ranked(made, [1, 2, 3, 99, -99, 20, 30, 40])
    assert _line(_axis("ppo.gamma", scored), scored) == ([0.5, 0.9], [25.0, 2.5])


def test_many_values_are_put_together():
    """12 and more distinct values: six parts, here of three each, whose middles are 1, 4, …"""
    made = planned(base=BUDGET, grid={"gamma": [i / 20 for i in range(18)]})
    scored = ranked(made, range(18))
    x, y = _line(_axis("ppo.gamma", scored), scored)
    np.testing.assert_allclose(x, [0.05, 0.2, 0.35, 0.5, 0.65, 0.8])
    assert y == [1, 4, 7, 10, 13, 16]
