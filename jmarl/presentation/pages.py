"""Web pages that are one file and need nothing else: a template, and data that cannot break out."""

import html
import importlib.resources
import json
import re
from typing import Any


def filled(template: str, title: str, data: Any) -> str:
    """The page `templates/<template>` with its title and its data."""
    text = (
        importlib.resources.files("jmarl.presentation")
        .joinpath("templates", template)
        .read_text(encoding="utf-8")
    )
    places = {"title": html.escape(title), "data": embedded(data)}
    # in one pass, so that nothing filled in is taken for a place to fill
    return re.sub(r"\{\{(\w+)\}\}", lambda place: places[place[1]], text)


def embedded(data: Any) -> str:
    """JSON that neither ends the script element it stands in nor begins a comment there."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)  # ASCII only
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
