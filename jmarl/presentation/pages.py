"""Self-contained web pages: fills templates with data, escaped so that it stays data."""

import html
import importlib.resources
import json
import re
from typing import Any


def filled(template: str, title: str, data: Any) -> str:
    """The page `templates/<template>` with this title and data."""
    text = (
        importlib.resources.files("jmarl.presentation")
        .joinpath("templates", template)
        .read_text(encoding="utf-8")
    )
    places = {"title": html.escape(title), "data": embedded(data)}
    # In one pass, so that filled-in text is never taken for a placeholder.
    return re.sub(r"\{\{(\w+)\}\}", lambda place: places[place[1]], text)


def embedded(data: Any) -> str:
    """JSON that can neither end the enclosing script element nor begin a comment in it."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)  # ASCII only
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
