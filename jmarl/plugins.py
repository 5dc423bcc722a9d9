"""Plug-ins: Python files and modules that register worlds, algorithms and networks.

A file is imported as the module of its name: `my_world.py` as `my_world`.
"""

import contextlib
import hashlib
import importlib
import importlib.metadata
import importlib.util
import re
import sys
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from jmarl.errors import ConfigError, RunError, brief

ENTRY_POINTS = "jmarl.plugins"  # the group that installed packages name their plug-ins in


class Plugin(NamedTuple):
    """A module that has been imported as a plug-in."""

    name: str  # an absolute path, or the name of an installed module
    path: str
    sha256: str


LOADED: dict[str, Plugin] = {}  # by the name of the module
_installed: list[str] = []  # entry points that have been read


def load_plugins(names: Iterable[str]) -> tuple[str, ...]:
    """Import plug-ins, those of installed packages first. Returns names that also hold in another
    directory. A file that has changed since it was imported is imported again."""
    load_installed()
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise ConfigError(f"plugins={brief(names)} is not a list of files and modules.")
    return tuple(dict.fromkeys(_load(name).name for name in names))


def load_recorded(names: Any) -> tuple[str, ...]:
    """Import the plug-ins of a run again. One of the same name that is loaded from another place
    stands for a file."""
    load_installed()
    if not isinstance(names, list | tuple):
        return load_plugins(names)
    here = (LOADED.get(Path(x).stem) if isinstance(x, str) and is_file(x) else None for x in names)
    return load_plugins(
        [known.name if known else name for known, name in zip(here, names, strict=True)]
    )


def located_plugins(names: Any, directory: Path) -> Any:
    """Names in a file of that directory: those of files start there."""
    if not isinstance(names, list | tuple):
        return names  # which is refused
    return [str(directory / x) if isinstance(x, str) and is_file(x) else x for x in names]


def load_installed() -> None:
    """Import the plug-ins of installed packages, once."""
    if _installed:
        return
    _installed.append(ENTRY_POINTS)
    for point in importlib.metadata.entry_points(group=ENTRY_POINTS):
        _installed.append(point.name)
        _load(point.module)


def is_file(name: str) -> bool:
    """Whether a plug-in's name is that of a file, not of a module."""
    return name.endswith(".py") or "/" in name


def digests() -> list[dict[str, str]]:
    """What is loaded, for the record of a run."""
    return [{"module": module, **plugin._asdict()} for module, plugin in LOADED.items()]


def changed(recorded: Iterable[Any]) -> list[Plugin]:
    """Those loaded now whose content is not what a run has recorded."""
    known = {one.get("module"): one.get("sha256") for one in recorded if isinstance(one, dict)}
    return [
        plugin
        for module, plugin in LOADED.items()
        if known.get(module, plugin.sha256) != plugin.sha256
    ]


def _load(name: Any) -> Plugin:
    if not isinstance(name, str) or not name or "\0" in name:
        raise ConfigError(f"plug-in {brief(name)} is neither a file nor a module.")
    return _load_file(Path(name).expanduser().absolute()) if is_file(name) else _load_module(name)


def _load_file(path: Path) -> Plugin:
    what = f"plug-in {str(path)!r}"
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{what} cannot be read: {error.strerror}.") from None
    plugin = Plugin(str(path), str(path), hashlib.sha256(content).hexdigest())
    module = path.stem
    if LOADED.get(module) == plugin:
        return plugin
    if not module.isidentifier() or _taken(module, path):
        raise ConfigError(
            f"{what} cannot be imported as module {module!r}, which "
            f"{'exists already' if module.isidentifier() else 'is no name'}: rename the file."
        )
    before = sys.modules.get(module), LOADED.get(module)
    made = ModuleType(module)
    made.__file__ = str(path)
    sys.modules[module], LOADED[module] = made, plugin
    try:
        exec(compile(content, str(path), "exec"), made.__dict__)
    except BaseException as error:
        told = explained(error)
        _restore(module, *before)
        if isinstance(error, KeyboardInterrupt):
            raise
        raise ConfigError(told or f"{what}: {_message(error)}") from None
    return plugin


def _restore(module: str, known: ModuleType | None, plugin: Plugin | None) -> None:
    """As it was before an import that failed."""
    sys.modules.pop(module, None)
    LOADED.pop(module, None)
    if known is not None:
        sys.modules[module] = known
    if plugin is not None:
        LOADED[module] = plugin


def _taken(module: str, path: Path) -> bool:
    """Whether another module has the name."""
    if module in LOADED:
        return LOADED[module].path != str(path)
    if module in sys.modules:
        return getattr(sys.modules[module], "__file__", None) != str(path)
    found = importlib.util.find_spec(module)
    return found is not None and (found.origin is None or Path(found.origin).absolute() != path)


def _load_module(name: str) -> Plugin:
    known = next((plugin for plugin in LOADED.values() if plugin.name == name), None)
    if known is not None:
        return known
    try:
        module = importlib.import_module(name)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(f"{error.name}."):
            raise ConfigError(
                f"plug-in {name!r} cannot be imported: there is no module {error.name!r}. The name "
                f"of a file ends with .py."
            ) from None
        raise ConfigError(f"plug-in {name!r}: {_place(error)}{_message(error)}") from None
    path = Path(getattr(module, "__file__", None) or name)
    content = path.read_bytes() if path.is_file() else b""
    LOADED[name] = Plugin(name, str(path), hashlib.sha256(content).hexdigest())
    return LOADED[name]


def explained(error: BaseException) -> str | None:
    """An error that a plug-in has raised, with its file and line; None: it came from elsewhere."""
    paths = {plugin.path for plugin in LOADED.values()}
    if isinstance(error, SyntaxError) and error.filename in paths:
        return f"plug-in {error.filename!r}, line {error.lineno}: {_message(error)}"
    frames = traceback.extract_tb(error.__traceback__)
    places = [(frame.filename, frame.lineno) for frame in frames]
    # an error within a callback arrives as text
    text = re.findall(r'File "([^"\n]+)", line (\d+)', str(error))
    for path, line in (*reversed(text), *reversed(places)):
        if path in paths:
            return f"plug-in {path!r}, line {line}: {_message(error, bool(text))}"
    return None


def _place(error: BaseException) -> str:
    """The last line of Python that was run."""
    if isinstance(error, SyntaxError):
        return f"{error.filename!r}, line {error.lineno}: "
    frames = traceback.extract_tb(error.__traceback__)
    return f"{frames[-1].filename!r}, line {frames[-1].lineno}: "


def _message(error: BaseException, last: bool = False) -> str:
    """In one line; of an error that quotes a traceback, its `last` one."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if isinstance(error, ConfigError | RunError):
        return " ".join(lines)
    if last:
        named = [line for line in lines if re.match(r"[\w.]+(Error|Exception|Interrupt)\b", line)]
        return f"{(named or lines)[-1].rstrip('.')}."
    said = error.msg if isinstance(error, SyntaxError) else (lines or [""])[0]
    return f"{type(error).__name__}{f': {said}' if said else ''}".rstrip(".") + "."


@contextlib.contextmanager
def before_anything_is_done() -> Iterator[None]:
    """Errors that plug-ins raise here are of what was asked: nothing is on disk yet."""
    try:
        yield
    except (ConfigError, RunError):
        raise
    except Exception as error:
        if (told := explained(error)) is None:
            raise
        raise ConfigError(told) from error
