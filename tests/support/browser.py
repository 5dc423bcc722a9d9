"""Pages as a person opens them: from disk, in headless Chromium, with nothing to reach outside."""

import shutil

import pytest

FLAGS = (
    "--no-sandbox",  # tests may run as root
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
)
LOCAL = ("file:", "data:", "blob:", "about:")


def find_chromium() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="module")
def browser():
    program = find_chromium()
    if program is None:
        pytest.skip("no Chromium found (Debian: apt-get install chromium)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        yield chromium
        chromium.close()


@pytest.fixture
def open_page(browser):
    """`open_page(path, **context options)` → Playwright's page. In the end no page may have
    complained on its console, thrown, or asked for anything but itself."""
    contexts, complaints = [], []

    def opened(path, **options):
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(f"thrown: {error}"))
        page.on("console", lambda said: complaints.append(said.text) if said.type == "error" else 0)
        page.on("request", lambda asked: _local(asked.url) or complaints.append(asked.url))
        page.goto(path.resolve().as_uri())
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not complaints


def _local(url: str) -> bool:
    return url.startswith(LOCAL)
