"""Drawing with Pillow: smooth edges, wrapped text, a small palette."""

import itertools
from collections.abc import Iterable, Sequence
from functools import cache

from PIL import Image, ImageColor, ImageDraw, ImageFont

SHARP = 3  # draw this many times larger, then shrink: edges become smooth
LINE_HEIGHT = 1.3  # relative to the text size
BLENDS = (0.25, 0.5, 0.75)
PALETTE = 256
# Minimum distance between palette colours, in levels. Pillow matches colours only to within 4
# levels and would otherwise draw flat areas in the colour of an edge.
NEAR = 8

Point = tuple[float, float]


@cache
def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size * SHARP)


class Canvas:
    """All lengths are pixels of the finished picture."""

    def __init__(self, width: int, height: int, paper: str) -> None:
        self._image = Image.new("RGB", (width * SHARP, height * SHARP), paper)
        self._draw = ImageDraw.Draw(self._image)

    def disc(
        self, at: Point, radius: float, fill: str | None, edge: str | None = None, width: float = 1
    ) -> None:
        """Draw a disc; its edge lies inside the radius."""
        x, y, r = at[0] * SHARP, at[1] * SHARP, radius * SHARP
        box = (x - r, y - r, x + r, y + r)
        self._draw.ellipse(box, fill, edge, round(width * SHARP) if edge else 0)

    def line(self, start: Point, end: Point, colour: str, width: float) -> None:
        ends = [tuple(SHARP * x for x in point) for point in (start, end)]
        self._draw.line(ends, colour, round(width * SHARP))  # pyright: ignore[reportArgumentType]

    def shape(self, corners: Sequence[Point], fill: str) -> None:
        if corners:
            self._draw.polygon([(x * SHARP, y * SHARP) for x, y in corners], fill)

    def box(
        self,
        corner: Point,
        size: Point,
        fill: str | None,
        edge: str | None = None,
        rounding: float = 0,
    ) -> None:
        (x, y), (width, height) = corner, size
        spread = tuple(SHARP * v for v in (x, y, x + width, y + height))
        self._draw.rounded_rectangle(spread, rounding * SHARP, fill, edge, SHARP)

    def text(
        self,
        at: Point,
        words: str,
        size: int,
        colour: str,
        anchor: str = "la",
        halo: str | None = None,
    ) -> None:
        """Draw text; a halo keeps it legible on any background."""
        place, stroke = (at[0] * SHARP, at[1] * SHARP), SHARP if halo else 0
        font = _font(size)
        self._draw.text(place, words, colour, font, anchor, stroke_width=stroke, stroke_fill=halo)

    def finished(self) -> Image.Image:
        return self._image.reduce(SHARP)


def text_width(words: str, size: int) -> float:
    return _font(size).getlength(words) / SHARP


def wrap(words: str, size: int, width: float) -> list[str]:
    """Break text into lines no wider than `width`, unless a single word is wider."""
    lines: list[str] = []
    for word in words.split():
        if lines and text_width(f"{lines[-1]} {word}", size) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def blend(one: str, other: str, share: float) -> str:
    """The colour `share` of the way from `one` to `other`."""
    levels = zip(ImageColor.getrgb(one), ImageColor.getrgb(other), strict=True)
    return "#" + "".join(f"{round(a + share * (b - a)):02x}" for a, b in levels)


def _colour_distance(one: Sequence[int], other: Sequence[int]) -> int:
    return max(abs(a - b) for a, b in zip(one, other, strict=True))


def quantize(frames: Iterable[Image.Image], colours: Sequence[str]) -> list[Image.Image]:
    """Quantize frames to one palette: the given colours, and blends of two for smooth edges."""
    pairs = itertools.combinations(dict.fromkeys(colours), 2)
    edges = [blend(one, other, share) for one, other in pairs for share in BLENDS]
    entries = [ImageColor.getrgb(colour) for colour in dict.fromkeys(colours)]
    for colour in map(ImageColor.getrgb, edges):
        if all(_colour_distance(colour, entry) >= NEAR for entry in entries):
            entries.append(colour)
    palette = Image.new("P", (1, 1))
    palette.putpalette([level for entry in entries[:PALETTE] for level in entry])
    return [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
