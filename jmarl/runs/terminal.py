"""Standard output and standard error that cope with any receiver: a terminal, a pipe that is closed
early, an ASCII locale."""

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from typing import Any, TextIO

from rich.console import Console
from rich.text import Text

# ASCII for the characters that jmarl, rich and tyro print
ASCII = {
    **{"…": "...", "−": "-", "–": "-", "—": "-", "×": "x", "·": "*", "•": "*", "±": "+-"},
    **{"→": "->", "←": "<-", "≥": ">=", "≤": "<=", "≈": "~", "’": "'", "“": '"', "”": '"'},
    **dict.fromkeys("─━┄┅┈┉╌╍═╴╶╸╺╼╾", "-"),
    **dict.fromkeys("│┃┆┇┊┋╎╏║╵╷╹╻╽╿", "|"),
}
NOBODY_READS = (errno.EPIPE, errno.ECONNRESET, errno.EIO)  # EIO: the terminal was closed


class SafeStream:
    """A text stream that accepts any text. It replaces characters that the underlying stream
    cannot encode. After a failed write it drops all text and keeps the error."""

    encoding = "utf-8"  # rich and tyro then leave the choice of characters to `write`

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.error: OSError | None = None

    def write(self, text: str) -> int:
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        errors = getattr(self._stream, "errors", None) or "strict"
        self._attempt(self._stream.write, encodable(text, encoding, errors))
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        self.write("".join(lines))

    def flush(self) -> None:
        self._attempt(self._stream.flush)

    def _attempt(self, action: Callable[..., Any], *given: Any) -> None:
        if self.error is None:
            try:
                action(*given)
            except OSError as error:
                self.error = error
            except ValueError:  # Python's own stream was closed
                self.error = BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    def discard(self) -> None:
        """Send what a failed write left in the buffer to /dev/null, so that the interpreter's last
        flush succeeds."""
        with contextlib.suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def encodable(text: str, encoding: str, errors: str = "strict") -> str:
    """The text with ASCII in place of the characters that the encoding lacks."""
    try:
        text.encode(encoding, errors)
        return text
    except UnicodeEncodeError:
        return "".join(_encodable_character(c, encoding, errors) for c in text)


def _encodable_character(character: str, encoding: str, errors: str) -> str:
    try:
        character.encode(encoding, errors)
        return character
    except UnicodeEncodeError:
        pass
    if character in ASCII:
        return ASCII[character]
    if "\u2500" <= character <= "\u257f":  # corners and crossings of boxes
        return "+"
    if "\u2800" <= character <= "\u28ff":  # a spinner's dots
        return "*"
    return character.encode("ascii", "backslashreplace").decode("ascii")


def make_console(stream: TextIO | SafeStream | None, **options: Any) -> Console:
    """A console that keeps working when its stream fails. None: the stream was closed before
    we started."""
    safe: Any = stream if stream is None or isinstance(stream, SafeStream) else SafeStream(stream)
    return Console(file=safe, quiet=safe is None, emoji=False, **options)


def has_bar(console: Console) -> bool:
    """Whether the console can redraw a line."""
    return console.is_terminal and not console.is_dumb_terminal


@contextlib.contextmanager
def working(console: Console, text: str) -> Iterator[Callable[[str], None]]:
    """Show what is in progress: a spinner on a terminal, lines on a dumb terminal, nothing in a
    pipe or file. Yields a function that changes the text."""
    if console.is_dumb_terminal:

        def print_line(text: str) -> None:
            console.print(text, markup=False, soft_wrap=True)

        print_line(text)
        yield print_line
        return
    with console.status(Text(text)) as status:
        yield lambda text: status.update(Text(text))
