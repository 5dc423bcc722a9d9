"""The replay page as a person uses it: in a browser, from disk."""

import html
from dataclasses import replace

import numpy as np
import pytest
from PIL import ImageColor

from jmarl.replays.attention import Map, TeamAttention
from jmarl.replays.legend import LEGENDS
from jmarl.replays.page import page
from tests.replays.test_replay import staged

pytestmark = pytest.mark.long

STEPS = 12
HOSTILE = "</script><script>window.hacked=1</script><img src=x onerror=window.hacked=1>{{data}}"
PHONE = {"viewport": {"width": 390, "height": 800}}
STILL = {"reduced_motion": "reduce"}  # so that nothing plays before it is asked to


def attended(replay, agents, seed, blocks=1, heads=1, turns=None):
    """Weights that nothing computed: at random, rows sum to 1, none for those who come later."""
    rng, n = np.random.default_rng(seed), len(agents)
    shape = (replay.episodes, replay.steps, heads, n)
    order = np.arange(n) if turns is None else np.array(turns)
    turn = np.argsort(order)
    heard = np.hstack([np.ones((n, 1), bool), turn[None] < turn[:, None]])
    maps = []
    for block in range(blocks):
        views = rng.dirichlet(np.ones(n), shape)
        told = [rng.dirichlet(np.ones(n + 1), shape) * heard for _ in range(2)]
        told = [weights / weights.sum(-1, keepdims=True) for weights in told]
        maps += [Map("views", block, views), Map("actions", block, told[0])]
        maps += [Map("decision", block, told[1])]
    drawn = None if turns is None else np.broadcast_to(order, (*shape[:2], n))
    return TeamAttention(agents, tuple(maps), drawn)


def wandering(scenario, **options):
    replay = staged(scenario, seed=5, steps=STEPS, **options)
    rng = np.random.default_rng(6)
    steps = rng.normal(0, 0.05, replay.pos.shape)
    replay.pos[:] = replay.pos[:, :1] * 0.8 + steps.cumsum(1)
    ways = np.array([[0, 0], [-1, 0], [1, 0], [0, -1], [0, 1]])
    movers = np.array([[agent.moves] for agent in replay.entities.agents])
    replay.move[:] = ways[rng.integers(0, 5, replay.move.shape[:3])] * movers
    return replay


@pytest.fixture(scope="module")
def spread():
    replay = wandering("simple_spread")
    return replace(replay, attention=(attended(replay, (0, 1, 2), 7),))


@pytest.fixture
def opened(open_page, tmp_path):
    """A replay's page, stopped at its beginning."""

    def opened(replay, title="a run", about="how it was played", **options):
        path = tmp_path / "replay.html"
        path.write_text(page(replay, title, about), encoding="utf-8")
        return open_page(path, **STILL | options)

    return opened


def pixels(tab, canvas="scene"):
    return tab.evaluate(f"document.getElementById('{canvas}').toDataURL()")


def pixel(tab, at):
    """The colour of the scene at a place of the world."""
    return tab.evaluate(
        """([x, y]) => {
          const canvas = el("scene"), scale = canvas.width / 2 / episode.reach;
          const column = Math.round(canvas.width / 2 + x * scale);
          const row = Math.round(canvas.height / 2 - y * scale);
          return [...canvas.getContext("2d").getImageData(column, row, 1, 1).data].slice(0, 3);
        }""",
        [float(x) for x in at],
    )


def paid(tab):
    return [row.inner_text().split()[-3:] for row in tab.locator("#paid tr").all()]


def step_shown(tab):
    return int(tab.locator("#now").inner_text().split()[1])


def wait(tab, condition, patience=2000):
    """Asked from outside: the page's own policy forbids the browser's way, which is an `eval`."""
    while not tab.evaluate(condition):
        assert (patience := patience - 1), condition
        tab.wait_for_timeout(10)


def test_it_steps_and_scrubs_and_numbers_are_those_of_the_record(opened, spread):
    tab = opened(spread)
    assert step_shown(tab) == 0
    tab.click("#next")
    tab.click("#next")
    tab.click("#back")
    assert step_shown(tab) == 1
    tab.locator("#time").fill("7")
    assert step_shown(tab) == 7
    so_far = spread.reward[0].sum(-1).cumsum()
    numbers = (spread.reward[0, 6].sum(), so_far[6], so_far[-1])
    np.testing.assert_allclose([float(x) for x in paid(tab)[0]], numbers, atol=0.012)
    tab.select_option("#by", "agents")
    each = [float(row[1]) for row in paid(tab)]
    np.testing.assert_allclose(each, spread.reward[0, :7].sum(0), atol=0.012)
    words = {(0, 0): "stays", (1, 0): "right", (-1, 0): "left", (0, 1): "up", (0, -1): "down"}
    for row, move in zip(tab.locator("#doing tr").all(), spread.move[0, 7], strict=True):
        assert words[tuple(move.astype(int))] in row.inner_text()


def test_discs_are_where_the_record_has_them(opened, spread):
    still = np.zeros_like(spread.move)  # no arrows on the discs
    replay = replace(spread, pos=spread.pos.copy(), move=still, attention=())
    replay.pos[0, 3] = [[-0.7, -0.6], [0.7, -0.5], [-0.1, 0.7]]
    tab = opened(replay)
    tab.locator("#time").fill("3")
    colour = ImageColor.getrgb(replay.legend.roles[0].colour)
    for place in replay.pos[0, 3]:
        np.testing.assert_allclose(pixel(tab, place + 0.05), colour, atol=3)
        beyond = pixel(tab, place + np.array([0.17, 0]))  # 0.15 is the radius
        assert np.abs(np.array(beyond) - colour).max() > 40
    tab.locator("#time").fill("0")
    before = pixels(tab)
    tab.locator("#time").fill("1")
    assert pixels(tab) != before


def test_it_plays_and_pauses(opened, spread):
    tab = opened(spread)
    before = pixels(tab)
    tab.select_option("#speed", "0.25")
    tab.click("#play")
    wait(tab, "time > 0.1")
    tab.click("#play")
    assert tab.locator("#play").inner_text() == "Play"
    assert pixels(tab) != before
    stopped = tab.evaluate("time")
    tab.wait_for_timeout(100)
    assert tab.evaluate("time") == stopped
    tab.select_option("#speed", "4")
    tab.click("#play")
    wait(tab, "time === data.steps && !playing")
    assert step_shown(tab) == STEPS


def test_an_episode_is_chosen(opened, spread):
    tab = opened(spread)
    before = pixels(tab)
    tab.locator("#time").fill("5")
    tab.select_option("#episode", index=1)
    assert step_shown(tab) == 0
    assert pixels(tab) != before
    whole = float(paid(tab)[0][2])
    np.testing.assert_allclose(whole, spread.reward[1].sum(), atol=0.012)


def test_the_keyboard_does_all_of_it(opened, spread):
    tab = opened(spread)
    for key, step in (("ArrowRight", 1), (".", 2), (",", 1), ("ArrowLeft", 0), ("End", STEPS)):
        tab.keyboard.press(key)
        assert step_shown(tab) == step, key
    tab.keyboard.press("n")
    assert (tab.input_value("#episode"), step_shown(tab)) == ("1", 0)
    tab.keyboard.press("p")
    assert tab.input_value("#episode") == "0"
    tab.keyboard.press("Space")
    assert tab.evaluate("playing")
    tab.keyboard.press("Space")
    assert not tab.evaluate("playing")
    tab.keyboard.press("Tab")
    style = "getComputedStyle(document.activeElement).outlineStyle"
    assert tab.evaluate(style) == "solid"


def fields(tab, map_number):
    """Numbers of a map, NaN where nobody can look."""
    lines = tab.locator(".map").nth(map_number).locator("tbody tr").all()
    texts = [[cell.inner_text() for cell in line.locator("td").all()] for line in lines]
    return np.array([[float(text) if text else np.nan for text in line] for line in texts])


def test_maps_show_who_looks_at_whom(opened, spread):
    tab = opened(spread)
    tab.locator("#time").fill("4")
    for number, told in enumerate(spread.attention[0].maps):
        weights = told.weights[0, 4, 0]
        shown = fields(tab, number)
        assert shown.shape == weights.shape
        known = np.isfinite(shown)
        np.testing.assert_allclose(shown[known], weights[known], atol=0.0061)
        assert (weights[~known] == 0).all()
        assert known.sum() == (9 if told.part == "views" else 6)
    tab.locator(".map").first.locator("td").nth(5).focus()  # agent_1 → agent_2
    exact = spread.attention[0].maps[0].weights[0, 4, 0, 1, 2]
    said = tab.locator("#weight").inner_text()
    assert "agent_1 attends to agent_2" in said
    assert abs(float(said.rsplit(" ", 1)[1]) - exact) < 0.0011
    before = pixels(tab)  # links of agent_1
    tab.keyboard.press("ArrowUp")
    assert "agent_0 attends to agent_2" in tab.locator("#weight").inner_text()
    assert step_shown(tab) == 4
    assert pixels(tab) != before


def test_teams_blocks_heads_and_turns_are_told_apart(opened):
    replay = wandering("simple_tag")
    hunters = attended(replay, (0, 1, 2), 8, blocks=2, heads=2, turns=(2, 0, 1))
    tab = opened(replace(replay, attention=(hunters, attended(replay, (3,), 9, 2, 2, (0,)))))
    assert tab.locator("#teams h3").all_inner_texts() == ["Team: predator", "Team: prey"]
    assert "adversary_2, adversary_0, adversary_1" in tab.locator("#turns").inner_text()
    weights = hunters.maps[3].weights[0, 0]  # views of the second block
    tab.select_option("#block", index=1)
    np.testing.assert_allclose(fields(tab, 0), weights.mean(0), atol=0.0061)
    tab.select_option("#head", index=2)  # after all, averaged
    np.testing.assert_allclose(fields(tab, 0), weights[1], atol=0.0061)
    blind = np.isnan(fields(tab, 2))[:, 1:]
    assert blind.tolist() == [[True, True, False], [False, True, False], [True, True, True]]


@pytest.mark.parametrize("scenario", sorted(LEGENDS))
def test_every_scenario_opens_on_a_phone(scenario, opened):
    replay = wandering(scenario)
    tab = opened(replay, **PHONE)
    tab.keyboard.press("ArrowRight")
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390
    legend = tab.locator("#legend").inner_text()
    assert all(role.aim in legend for role in replay.legend.roles)
    assert tab.locator("#attention").is_hidden()
    assert len(tab.locator("#doing tr").all()) == len(replay.entities.agents)


def test_maps_of_many_fit_a_phone(opened):
    replay = wandering("simple_spread", num_agents=9)
    tab = opened(replace(replay, attention=(attended(replay, tuple(range(9)), 1),)), **PHONE)
    assert tab.locator(".map").count() == 3
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390


def test_dark_and_light_differ(opened, spread):
    looks = {}
    for scheme in ("light", "dark"):
        tab = opened(spread, color_scheme=scheme)
        looks[scheme] = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert looks == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 24, 31)"}


def test_hostile_names_are_only_shown(opened, spread):
    tab = opened(spread, HOSTILE, HOSTILE)
    assert tab.title() == HOSTILE
    assert tab.locator("h1").inner_text() == HOSTILE
    assert HOSTILE in tab.locator("#about").inner_text()
    assert tab.evaluate("window.hacked") is None
    assert tab.locator("img").count() == 0


def test_it_plays_within_another_page(open_page, tmp_path, spread):
    inner = html.escape(page(spread, HOSTILE, ""))
    outer = tmp_path / "report.html"
    outer.write_text(
        f'<!doctype html><iframe width="700" height="900" srcdoc="{inner}"></iframe>',
        encoding="utf-8",
    )
    inside = open_page(outer, **STILL).frame_locator("iframe")
    inside.locator("#next").click()
    assert inside.locator("#now").inner_text() == f"Step 1 of {STEPS}"
    assert inside.locator("html").evaluate("x => x.scrollWidth <= x.clientWidth")
