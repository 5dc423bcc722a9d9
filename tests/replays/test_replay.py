"""Replays: what was played is what is shown, in arrays, words and pixels."""

import io
import json
import re
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from PIL import Image, ImageColor

import jmarl
from jmarl.algorithms.build import make_trainer
from jmarl.errors import ConfigError
from jmarl.evaluation.trained_policy import TrainedPolicy
from jmarl.learning.episodes import play_episodes
from jmarl.replays.gif import gif, make_layout
from jmarl.replays.legend import LEGENDS, legend_of
from jmarl.replays.narration import narrate
from jmarl.replays.page import LIMIT, page
from jmarl.replays.replay import Cargo, Replay, moves, record
from tests.support.tiny_runs import configured

HOSTILE = "</script><img src=x onerror=alert(1)>{{data}}<!--&\u2028"


def untrained(scenario, **values):
    config = configured(None, env=f"mpe/{scenario}", **values)
    trainer, _ = make_trainer(config)
    policies = jax.jit(trainer.init)(jax.random.key(0)).policies
    return TrainedPolicy(config, trainer.env, trainer.players, policies)


def staged(scenario, seed=0, steps=3, episodes=2, **options):
    """A replay that no policy played: places and rewards at random, as far apart as they fall."""
    env = jmarl.make(f"mpe/{scenario}", **options)
    entities, rng = env.scenario.entities, np.random.default_rng(seed)
    n, words = (
        len(entities.agents),
        (episodes, steps + 1, len(entities.speakers), entities.message_size),
    )
    start = jax.eval_shape(lambda: env.scenario.start(jax.random.split(jax.random.key(0), 1)))
    message = np.zeros(words)
    message[:, 1:, :, 1:2] = 1
    return Replay(
        env=env.spec.name,
        algorithm="none",
        scenario=scenario,
        entities=entities,
        teams=env.spec.teams,
        legend=legend_of(env.scenario),
        pos=rng.uniform(-1, 1, (episodes, steps + 1, n, 2)),
        vel=rng.uniform(-1, 1, (episodes, steps + 1, n, 2)),
        landmarks=rng.uniform(-1, 1, (episodes, len(entities.landmarks), 2)),
        message=message,
        goal=np.zeros((episodes, start.goal.shape[0]), int),
        action=np.zeros((episodes, steps, n), int),
        move=np.zeros((episodes, steps, n, 2)),
        reward=rng.normal(size=(episodes, steps, n)),
        cargo=staged_cargo(rng, episodes, steps, env) if scenario == "collect_treasure" else None,
    )


def staged_cargo(rng, episodes, steps, env):
    """Landmark k has the colour of deposit k % 2, or is not there; so is what collectors carry."""
    count, deposits = len(env.scenario.entities.landmarks), np.array([-1, 6, 7])
    carried = deposits[rng.integers(3, size=(episodes, steps + 1, 8))]
    carried[:, :, 6:] = -1
    return Cargo(
        place=rng.uniform(-0.9, 0.9, (episodes, steps + 1, count, 2)),
        owner=deposits[rng.integers(3, size=(episodes, steps + 1, count))],
        carried=carried,
        delivered=np.ones((episodes, steps + 1), int),
    )


@pytest.fixture(scope="module")
def spread():
    policy = untrained("simple_spread")
    return policy, record(policy, jax.random.key(3), 4)


def test_a_replay_is_what_evaluation_plays_from_the_same_key(spread):
    policy, replay = spread
    seen = jax.jit(
        lambda known: play_episodes(policy.env, policy.players, known, jax.random.key(3), 4)
    )(policy.policies)
    np.testing.assert_allclose(replay.reward.sum(1), seen.agent_return, rtol=1e-5)
    assert replay.pos.shape == (4, 26, 3, 2)
    assert replay.action.shape == (4, 25, 3)
    np.testing.assert_allclose(
        replay.team_reward[:, -1, 0], np.asarray(seen.agent_return).sum(1), rtol=1e-5
    )


@pytest.mark.parametrize(
    ("scenario", "options"),
    [
        ("collect_treasure", {"num_collectors": 2, "num_treasures": 3, "episode_length": 12}),
        ("simple_formation", {"N": 1, "terminate_on_success": True, "episode_length": 12}),
    ],
)
def test_events_and_early_ends_are_those_of_evaluation(scenario, options):
    policy = untrained(scenario, env_options=options)
    replay = record(policy, jax.random.key(4), 40, attention=False)
    seen = jax.jit(
        lambda known: play_episodes(policy.env, policy.players, known, jax.random.key(4), 40)
    )(policy.policies)
    np.testing.assert_allclose(replay.reward.sum(1), seen.agent_return, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(replay.length, seen.length)
    if replay.cargo is None:
        early = np.flatnonzero(replay.length < 12)
        assert 0 < len(early) < 40
        for e in early:
            end = int(replay.length[e])
            assert (replay.pos[e, end:] == replay.pos[e, end]).all()
            assert narrate(replay, e).events[-1] == (end, "success: the episode ends")
    else:
        cargo, gone = replay.cargo, (replay.cargo.owner == -1)
        assert set(np.unique(cargo.owner)) == {-1, 2, 3}
        np.testing.assert_array_equal(
            cargo.place[:, 1:][~gone[:, 1:] & ~gone[:, :-1]],
            cargo.place[:, :-1][~gone[:, 1:] & ~gone[:, :-1]],
        )
        # whatever is picked up is held, or was delivered
        picked = (gone[:, 1:] & ~gone[:, :-1]).sum((1, 2))
        held = (cargo.carried[:, -1] >= 0).sum(-1)
        np.testing.assert_array_equal(picked, held + cargo.delivered.sum(1))
        assert picked.any()


def test_rewards_are_those_of_the_states_they_lead_to(spread):
    """simple_spread by hand: half the landmarks' distances to the nearest agent, half the bumps."""
    _, replay = spread
    apart = np.linalg.norm(replay.pos[:, 1:, :, None] - replay.landmarks[:, None, None], axis=-1)
    between = np.linalg.norm(replay.pos[:, 1:, :, None] - replay.pos[:, 1:, None], axis=-1)
    bumps = (between < 0.3).sum(-1) - 1
    expected = -0.5 * apart.min(2).sum(-1)[..., None] - 0.5 * bumps
    np.testing.assert_allclose(replay.reward, expected, atol=1e-4)
    # mpe2 moves by the velocity of the state before
    np.testing.assert_allclose(
        replay.pos[:, 1:], replay.pos[:, :-1] + 0.1 * replay.vel[:, :-1], atol=1e-5
    )


WAYS = np.array([[0, 0], [-1, 0], [1, 0], [0, -1], [0, 1]])  # mpe2's five choices


def test_moves_are_what_speeds_agents_up(spread):
    """v ← ¾v + 5·move/10 by hand, where nobody is near enough to be pushed by another."""
    _, replay = spread
    np.testing.assert_array_equal(replay.move, WAYS[replay.action])
    apart = np.linalg.norm(replay.pos[:, :-1, :, None] - replay.pos[:, :-1, None], axis=-1)
    free = (apart + np.eye(3) > 0.35).all(-1)
    assert free.sum() > 50
    expected = 0.75 * replay.vel[:, :-1] + 0.5 * replay.move
    np.testing.assert_allclose(replay.vel[:, 1:][free], expected[free], atol=1e-5)


def test_moves_of_every_form_of_action():
    other = jmarl.make("mpe/simple_spread", dialect="onpolicy")  # has its directions reversed
    choices = np.arange(5)[None, None, :3] + np.arange(3)[:, None, None]
    np.testing.assert_array_equal(moves(other, choices), -WAYS[choices])
    factored = jmarl.make("mpe/simple_reference")
    heads = np.stack([choices[..., :2], 7 + 0 * choices[..., :2]], -1)
    np.testing.assert_array_equal(moves(factored, heads), WAYS[choices[..., :2]])
    strengths = np.array([[[[0.9, 0.2, 0.7, 0.0, 1.3]]]])  # clipped at 1
    continuous = jmarl.make("mpe/simple", actions="continuous")
    np.testing.assert_allclose(moves(continuous, strengths), [[[[0.5, 1.0]]]], rtol=1e-6)
    speaker = jmarl.make("mpe/simple_speaker_listener")
    np.testing.assert_array_equal(moves(speaker, np.array([[[2, 2]]])), [[[[0, 0], [1, 0]]]])


def test_other_worlds_are_refused():
    other = SimpleNamespace(env=jmarl.make("probe/context"), spec=jmarl.make("probe/context").spec)
    with pytest.raises(ConfigError, match=r"probe/context cannot be drawn; only the native mpe"):
        record(other, jax.random.key(0), 1)


@pytest.mark.parametrize("scenario", sorted(LEGENDS))
def test_every_scenario_is_told_and_drawn(scenario):
    replay = staged(scenario)
    roles = [replay.legend.role_of(i) for i in range(len(replay.entities.agents))]
    assert {role.name for role in roles} == {role.name for role in replay.legend.roles}
    assert {mark.kind for mark in replay.entities.landmarks} == {
        thing.kind for thing in replay.legend.things
    }
    words = narrate(replay, 0)
    assert len(words.lines) == replay.steps + 1
    assert all(words.lines)
    layout, picture = make_layout(replay, [0]), Image.open(io.BytesIO(gif(replay, [0], fps=10)))
    assert picture.n_frames == replay.steps + 1
    assert picture.size == (layout.width, layout.height)
    assert len(page(replay, scenario, "")) < LIMIT


@pytest.mark.parametrize("episodes", [[0], [0, 1]])
@pytest.mark.parametrize("scenario", ["simple_tag", "simple_adversary"])
def test_discs_are_where_the_agents_are(scenario, episodes):
    replay = staged(scenario, seed=4)
    # apart from each other, so that no disc hides another's middle
    corners = np.array([[-0.7, -0.6], [0.7, -0.5], [-0.6, 0.7], [0.5, 0.6]])
    replay.pos[:] = corners[: replay.pos.shape[2]]
    replay.pos[:, 1:] += 0.15
    replay.pos[1] *= 1.3
    picture = Image.open(io.BytesIO(gif(replay, episodes, fps=10)))
    layout = make_layout(replay, episodes)
    for state in range(replay.steps + 1):
        picture.seek(state)
        pixels = picture.convert("RGB")
        for episode, scene in zip(episodes, layout.scenes, strict=True):
            for i, place in enumerate(replay.pos[episode, state]):
                x, y = scene.at(place)
                found = np.array(pixels.getpixel((round(x), round(y))))
                colour = ImageColor.getrgb(replay.legend.role_of(i).colour)
                assert np.abs(found - colour).max() <= 8, (state, episode, i)
                # and ends where its radius does
                beyond = pixels.getpixel(
                    (round(x - scene.length(replay.entities.radius[i]) - 3), round(y))
                )
                assert np.abs(np.array(beyond) - colour).max() > 40


def test_treasures_and_what_is_carried_have_their_deposits_colours():
    replay = staged("collect_treasure", steps=1, episodes=1)
    replay.cargo.owner[:] = -1
    replay.cargo.carried[:] = -1
    replay.pos[:] = np.linspace([-0.9, -0.9], [0.9, -0.9], 8)
    replay.cargo.owner[0, 1, 0], replay.cargo.place[0, 1, 0] = 7, [0.5, 0.5]
    replay.cargo.carried[0, 1, 2] = 6
    layout = make_layout(replay, [0])
    picture = Image.open(io.BytesIO(gif(replay, [0], fps=10)))
    colours = {}
    for state in (0, 1):
        picture.seek(state)
        shown = picture.convert("RGB")
        for name, place in (("lies", [0.5, 0.5]), ("carried", replay.pos[0, 0, 2])):
            x, y = layout.scenes[0].at(np.asarray(place))
            colours[name, state] = shown.getpixel((round(x), round(y) + (name == "carried") * 5))
    wanted = {
        ("lies", 1): replay.legend.role_of(7).colour,
        ("carried", 1): replay.legend.role_of(6).colour,
        ("carried", 0): replay.legend.role_of(2).colour,
    }
    assert {k: colours[k] for k in wanted} == {k: ImageColor.getrgb(v) for k, v in wanted.items()}
    assert colours["lies", 0] == (255, 255, 255)


def test_an_arrow_points_where_an_agent_pushes():
    replay = staged("simple_spread", episodes=1, steps=4, num_agents=1)
    replay.pos[:], replay.vel[:] = 0.0, 0.0
    replay.landmarks[:] = 0.9
    replay.move[0, :, 0] = WAYS[[1, 2, 3, 4]]
    (scene,) = make_layout(replay, [0]).scenes
    picture = Image.open(io.BytesIO(gif(replay, [0], fps=10)))
    (x, y), radius = scene.at(np.zeros(2)), scene.length(replay.entities.radius[0])
    for state, (right, up) in enumerate(WAYS[1:]):
        picture.seek(state)
        pixels = picture.convert("L")

        def bright(share, right=right, up=up, pixels=pixels):
            """Beside the middle line, `share` of the radius ahead: the arrow's head is wide enough
            to cover that, its shaft is not."""
            side = 0.28 * radius
            place = (x + share * radius * right + side * up, y - share * radius * up + side * right)
            return pixels.getpixel(tuple(map(round, place))) > 200

        assert bright(0.1)
        assert not bright(-0.4)
    picture.seek(4)  # after the last step nobody pushes
    assert picture.convert("L").getpixel((round(x), round(y))) < 150


def test_a_scenario_of_ones_own_is_drawn_by_teams():
    own = SimpleNamespace(name="mine", entities=jmarl.make("mpe/simple_tag").scenario.entities)
    legend = legend_of(own)
    assert [(role.name, role.agents) for role in legend.roles] == [
        ("adversary", (0, 1, 2)),
        ("good", (3,)),
    ]
    assert legend.thing("obstacle").colour


def test_captures_are_counted_as_they_are_paid():
    replay = staged("simple_tag", steps=4, episodes=1)
    replay.pos[:] = np.array([[-0.9, -0.9], [0.9, 0.9], [-0.9, 0.9], [0.0, 0.0]])
    replay.pos[0, 0, 0] = [0.1, 0]  # touches before anything is paid
    replay.pos[0, 2:4, 1] = [0.0, 0.12]  # 0.075 + 0.05 reaches 0.125
    replay.pos[0, 4, 1] = [0.0, 0.13]
    words = narrate(replay, 0)
    counts = [re.search(r"caught (.*)", line)[1] for line in words.lines]
    assert counts == ["0 times", "0 times", "once", "2 times", "2 times"]
    assert words.events == [(2, "adversary_1 catches agent_0")]
    assert words.caught == ((), (), (3,), (3,), ())
    # the scenario itself, with the states as worlds: every touch pays each predator 10
    scenario = jmarl.make("mpe/simple_tag").scenario
    worlds = scenario.start(jax.random.split(jax.random.key(0), 5)).replace(
        pos=np.moveaxis(replay.pos[0], 0, -1)
    )
    np.testing.assert_array_equal(scenario.reward(worlds)[0, 1:] / 10, [0, 1, 1, 0])


def test_guesses_of_a_secret_are_counted():
    replay = staged("simple_crypto", steps=2, episodes=1)
    replay.goal[:] = [0, 1]
    replay.message[:] = 0
    for state, (eve, bob, alice) in ((1, (1, 0, 3)), (2, (0, 0, 3))):
        replay.message[0, state, [0, 1, 2], [eve, bob, alice]] = 1
    words = narrate(replay, 0)
    assert "Alice says 4, Bob guesses 1, Eve 2" in words.lines[1]
    assert "Bob 2, Eve 1 of 2" in words.lines[2]
    assert [text for _, text in words.events] == [
        "only Bob guesses the secret",
        "Bob and Eve both guess the secret",
    ]


def test_a_page_holds_the_replay_and_hostile_names_stay_text():
    replay = staged("simple_world_comm")
    made = page(replay, HOSTILE, HOSTILE)
    assert made.count("</script>") == 2
    assert "<img" not in made
    assert "<!--" not in made
    assert "&lt;/script&gt;&lt;img" in made  # the title, as text
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', made, re.S)
    data = json.loads(found)
    assert data["title"] == HOSTILE
    np.testing.assert_allclose(data["episodes"][1]["pos"], replay.pos[1], atol=6e-4)
    np.testing.assert_allclose(data["episodes"][0]["reward"], replay.reward[0], atol=6e-4)
    assert data["episodes"][0]["said"] == [[None], [1], [1], [1]]


def test_attention_is_recorded_for_every_step_and_written_in_thousandths():
    policy = untrained("simple_spread", algorithm="mat")
    replay = record(policy, jax.random.key(0), 2)
    (attention,) = replay.attention
    assert [(shown.part, shown.weights.shape) for shown in attention.maps] == [
        ("views", (2, 25, 1, 3, 3)),
        ("actions", (2, 25, 1, 3, 4)),
        ("decision", (2, 25, 1, 3, 4)),
    ]
    found = re.search(r'id="data">(.*?)</script>', page(replay, "run", ""), re.S)
    written = json.loads(found[1])["episodes"][1]["attention"][0]["maps"]
    for shown, weights in zip(attention.maps, written, strict=True):
        np.testing.assert_allclose(shown.weights.sum(-1), 1, atol=1e-5)
        np.testing.assert_allclose(np.array(weights) / 1000, shown.weights[1], atol=5.1e-4)


def test_a_page_asks_nothing_of_the_network():
    made = page(staged("simple"), "run", "")
    for outside in ("http://", "https://", "src=", "href=", "@import", "url("):
        assert outside not in made.replace("http://www.w3.org/2000/svg", "")


def test_a_page_too_large_is_refused():
    replay = staged("simple_spread", steps=400, episodes=120)
    with pytest.raises(ConfigError, match=r"120 episodes would have .* MB"):
        page(replay, "run", "")
