"""The page of a report as a person meets it: in a browser, with a pointer, keys, a phone."""

import json
import re

import numpy as np
import pytest
from scipy import stats

from jmarl.commands.report import Options, report
from jmarl.reports.page import LIMIT
from tests.support.report_files import (
    config_of,
    contested,
    measured,
    write_lines,
    write_run,
)
from tests.support.tiny_runs import configured, go

HOSTILE = "<script>alert(1)<\\script><!--'\"&amp;\u2028{{data}} <img src=x onerror=alert(2)>"
PHONE = {"viewport": {"width": 390, "height": 800}, "has_touch": True, "is_mobile": True}
SCORES = (-4.0, -6.5, -5.25)


def made(given, path, **options):
    report(given, Options(html=path, **options), lambda text: None)
    return path


@pytest.fixture(scope="module")
def page_path(tmp_path_factory):
    """Seven settings in one world: one of three seeds, one unfinished, one without evaluations; all
    of a name that tries to break out. And another world."""
    folder = tmp_path_factory.mktemp("runs") / HOSTILE
    for seed, score in enumerate(SCORES):
        write_run(folder / f"best{seed}", config_of(seed), [-20.0, -9.0, score], absolute=score)
    for i in range(4):
        own = config_of(algorithm="ippo", actions=HOSTILE, ppo={"lr": 0.1 * (i + 1)})
        write_run(folder / f"other{i}", own, [-20.0, -9.5, -8.0 - i])
    cut = config_of(algorithm=HOSTILE, ppo={HOSTILE: "</script><script>alert(3)</script>"})
    write_run(folder / "cut", cut, [-21.0], updates=3, finished=False, torn='{"upd')
    new = config_of(algorithm="mat")
    write_run(folder / "new", new, updates=2, finished=False)
    tag = write_run(folder / "tag", config_of(env="mpe/simple_tag"))
    write_lines(tag / "evals.jsonl", [contested(i, fox=1.0 + i, prey=-3.0) for i in range(3)])
    return made([folder], folder / "report.html", replays=0)


def chart(page, key="eval/return_mean"):
    return page.locator(f'figure[data-metric="{key}"]')


def number(text):
    return float(text.replace("−", "-").replace(",", ""))


def rows(page, table="final"):
    return [row.inner_text().split("\t") for row in page.locator(f"#{table} tbody tr").all()]


def students(scores):
    """The interval of the mean of three."""
    return stats.t.interval(0.95, 2, np.mean(scores), stats.sem(scores))


def test_hovering_shows_what_was_written(open_page, page_path):
    page = open_page(page_path)
    canvas = chart(page).locator("canvas")
    box = canvas.bounding_box()
    canvas.hover(position={"x": box["width"] - 3, "y": 60})
    tip = chart(page).locator(".tip")
    assert tip.locator("b").inner_text() == "1,000 steps"
    told = tip.locator("div").all_inner_texts()
    lines = [
        json.loads(
            (page_path.parent / f"best{i}" / "evals.jsonl")
            .read_text(encoding="utf-8")
            .splitlines()[-2]
        )
        for i in range(3)
    ]
    expected = np.mean([line["eval/return_mean"] for line in lines])  # of three, none is cut
    assert number(told[0].split(" (")[0]) == round(expected, 2)
    low, _ = students([line["eval/return_mean"] for line in lines])
    assert number(re.search(r"\((.*?) …", told[0])[1]) == round(low, 2)
    assert [number(text) for text in told[1:]] == [-8.0, -9.0, -10.0, -11.0]
    page.mouse.move(0, 0)
    assert tip.is_hidden()


def test_keys_read_values_and_tell_them(open_page, page_path):
    page = open_page(page_path)
    canvas = chart(page, "losses/value_loss").locator("canvas")
    canvas.focus()
    canvas.press("ArrowRight")
    canvas.press("ArrowRight")
    tip = chart(page, "losses/value_loss").locator(".tip")
    assert tip.locator("b").inner_text() == "200 steps"
    assert tip.get_attribute("aria-live") == "polite"
    assert number(tip.locator("div").first.inner_text().split(" (")[0]) == 0.5  # 1 / update
    canvas.press("End")
    assert tip.locator("b").inner_text() == "1,000 steps"
    canvas.press("ArrowLeft")
    assert tip.locator("b").inner_text() == "900 steps"
    canvas.press("Escape")
    assert tip.is_hidden()


def test_curves_switch_to_wall_clock(open_page, page_path):
    page = open_page(page_path)
    canvas = chart(page).locator("canvas")
    before = canvas.screenshot()
    page.get_by_label("against wall-clock").check()
    assert canvas.screenshot() != before
    canvas.focus()
    canvas.press("End")
    told = chart(page).locator(".tip b").inner_text()
    assert told == "5.0 s"  # half a second an update
    page.get_by_label("against steps").check()
    canvas.press("End")
    assert chart(page).locator(".tip b").inner_text() == "1,000 steps"


def test_the_best_are_ticked_and_others_can_be(open_page, page_path):
    page = open_page(page_path)
    ticks = page.locator("#final input")
    assert [tick.is_checked() for tick in ticks.all()] == [True] * 5 + [False] * 2
    assert "5 of 7 settings are drawn" in page.locator("#legend").inner_text()
    canvas = chart(page).locator("canvas")
    before = canvas.screenshot()
    ticks.nth(0).uncheck()
    page.mouse.move(0, 0)
    assert canvas.screenshot() != before
    assert "mappo" not in page.locator("#legend").inner_text()
    canvas.focus()
    canvas.press("End")
    told = chart(page).locator(".tip div").all_inner_texts()
    assert [number(text) for text in told] == [-8.0, -9.0, -10.0, -11.0]
    ticks.nth(0).check()
    assert "mappo" in page.locator("#legend").inner_text()


def test_the_final_table_agrees_with_the_files(open_page, page_path):
    page = open_page(page_path)
    first, *_, cut, new = rows(page)
    assert first[0].strip() == "mappo"
    rank, greedy, mean, sampled, best, seeds, steps, seconds, state = first[1:]
    assert (rank, seeds, steps, state) == ("1", "3", "1,000", "3 finished")
    middle, low, high = map(number, re.findall(r"[−\d.]+", greedy))
    expected = [np.mean(SCORES), *students(SCORES)]
    np.testing.assert_allclose([middle, low, high], expected, atol=0.005)
    assert number(mean) == number(best) == -5.25
    assert number(sampled.split(" (")[0]) == -6.25
    assert seconds == "5.0 s"
    assert (cut[1], cut[9]) == ("6", "unfinished")
    assert (new[1], new[2], new[9]) == ("–", "none yet", "unfinished")
    states = {row[0].rpartition("/")[2]: row[3] for row in rows(page, "runs")}
    assert states["cut"].startswith("unfinished")
    assert states["best0"] == "finished"


def test_configurations_show_what_differs_and_on_demand_all(open_page, page_path):
    page = open_page(page_path)
    names = [row[0] for row in rows(page, "config")]
    assert {"algorithm", "actions", "ppo.lr"} <= set(names)
    assert "num_envs" not in names
    page.get_by_label("all options").check()
    table = {row[0]: row[1:] for row in rows(page, "config")}
    assert table["num_envs"] == ["20"] * 5
    assert table["ppo.lr"][:2] == ["0.001", "0.1"]
    for i in range(1, 5):
        page.locator("#final input").nth(i).uncheck()
    page.get_by_label("all options").uncheck()
    assert "nothing differs" in page.locator("#same").inner_text()


def test_hostile_names_and_options_stay_text(open_page, page_path):
    """`open_page` also fails where a script of theirs complains."""
    page = open_page(page_path)
    asked = []
    page.on("dialog", lambda dialog: (asked.append(dialog.message), dialog.dismiss()))
    page.get_by_label("all options").check()
    page.locator("#final tbody tr", has_text="<script>").locator("input").check()
    assert HOSTILE in page.locator("#legend").text_content()
    assert HOSTILE in page.locator("#config").text_content()
    assert "</script><script>alert(3)" in page.locator("#config").text_content()
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 2
    page.wait_for_timeout(100)
    assert asked == []


def test_another_world_has_its_own_settings(open_page, page_path):
    page = open_page(page_path)
    page.get_by_label("world").select_option(label="mpe/simple_tag")
    assert "against each other" in page.locator("#opponents").inner_text()
    (told,) = page.locator("#final tbody tr").all()
    _, rank, greedy, mean, sampled, *_ = (cell.inner_text() for cell in told.locator("td").all())
    assert rank == "–"
    assert greedy.splitlines() == ["fox 3.50 (2.75 … 3.75)", "prey −2.50 (−3.25 … −2.25)"]
    assert mean.splitlines() == ["fox 3.00", "prey −3.00"]
    assert sampled.splitlines()[0].startswith("fox 2.50")
    chart(page, "eval/return_mean/prey").locator("canvas").press("End")
    told = chart(page, "eval/return_mean/prey").locator(".tip div").inner_text()
    assert number(told) == -3.0


def test_a_phone_shows_it_all_without_sideways_scrolling(open_page, page_path):
    page = open_page(page_path, **PHONE)
    for summary in page.locator("summary").all():
        summary.click()
    page.get_by_label("all options").check()
    wide = page.evaluate("document.documentElement.scrollWidth")
    assert wide <= 390
    canvas = chart(page).locator("canvas")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    page.touchscreen.tap(box["x"] + box["width"] - 5, box["y"] + 50)
    tip = chart(page).locator(".tip")
    assert tip.locator("b").inner_text() == "1,000 steps"
    inside = tip.bounding_box()
    assert inside["x"] >= 0
    assert inside["x"] + inside["width"] <= 390


def test_every_control_is_reached_by_keyboard_and_shows_it(open_page, page_path):
    page = open_page(page_path)
    seen = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        seen.add(
            page.evaluate(
                "(n => [n.id || n.name || n.tagName, getComputedStyle(n).outlineStyle].join(' '))"
                "(document.activeElement)"
            )
        )
    wanted = ("theme", "world", "against", "INPUT", "CANVAS", "all")
    assert {f"{name} solid" for name in wanted} <= seen


def contrast(page, selector):
    """WCAG: (lighter + 0.05) / (darker + 0.05), of text on the page's paper."""
    seen = page.locator(selector).first.evaluate(
        "n => [getComputedStyle(n).color, getComputedStyle(document.body).backgroundColor]"
    )

    def luminance(colour):
        parts = np.array([int(x) for x in re.findall(r"\d+", colour)[:3]]) / 255
        linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        return linear @ [0.2126, 0.7152, 0.0722]

    dark, light = sorted(luminance(colour) for colour in seen)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_both_schemes_are_readable_and_can_be_chosen(open_page, page_path, scheme):
    page = open_page(page_path, color_scheme=scheme)

    def paper():
        return page.evaluate("getComputedStyle(document.body).backgroundColor")

    assert (paper() == "rgb(255, 255, 255)") == (scheme == "light")
    for selector in ("h1", "#how", "#final .warn", "#legend li"):
        assert contrast(page, selector) >= 4.5, selector
    page.locator("#theme").click()  # light
    assert paper() == "rgb(255, 255, 255)"
    page.locator("#theme").click()  # dark
    assert paper() == "rgb(20, 24, 31)"
    assert contrast(page, "h1") >= 4.5


def test_long_runs_and_many_settings_stay_small_and_say_what_is_left_out(open_page, tmp_path):
    values = np.random.default_rng(0).normal(size=4000)
    for i in range(12):
        path = write_run(tmp_path / "r" / str(i), config_of(ppo={"lr": i + 1}), [1.0, 2.0 - i])
        lines = [measured(k + 1, **{"losses/value_loss": x}) for k, x in enumerate(values)]
        write_lines(path / "metrics.jsonl", lines)
    written = made([tmp_path / "r"], tmp_path / "report.html", replays=0)
    assert written.stat().st_size < LIMIT
    page = open_page(written)
    assert page.locator("#final input:checked").count() == 5
    for _ in range(3):
        page.locator("#final input:not(:checked)").first.check()
    assert page.locator("#final input:not(:checked):not(:disabled)").count() == 0
    assert "8 of 12 settings are drawn, no more at once" in page.locator("#legend").inner_text()
    note = chart(page, "losses/value_loss").locator("p").inner_text()
    kept = int(re.fullmatch(r"Of up to 4,000 points (\d+) are drawn; extremes are kept.", note)[1])
    assert 50 < kept < 1000
    data = json.loads(page.locator("#data").text_content())
    shown = data["worlds"][0]["settings"][0]["curves"]["losses/value_loss"]
    assert len(shown["y"]) == kept
    np.testing.assert_allclose(
        [min(shown["y"]), max(shown["y"])], [values.min(), values.max()], 1e-5
    )


@pytest.mark.long
def test_a_replay_is_filled_in_when_it_is_opened(open_page, tmp_path):
    run = tmp_path / "<b>run"
    go(configured(run, total_updates=2))
    written = made([run], run / "report.html", episodes=2)
    assert written.stat().st_size < LIMIT
    page = open_page(written)
    assert page.locator("iframe").count() == 0
    page.locator("#replays summary").click()
    frame = page.frame_locator("iframe")
    assert frame.locator("h1").inner_text() == "<b>run"
    assert frame.locator("#episode option").count() == 2
    page.wait_for_timeout(100)
    inked = frame.locator("#scene").evaluate(
        "c => new Set(new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, c.height)"
        ".data.buffer)).size"
    )
    assert inked > 3  # field, paper, agents, landmarks
    assert page.locator("iframe").get_attribute("sandbox") == "allow-scripts"
