"""Command lines from configuration classes: options typed by tyro, each fault in one sentence."""

import contextlib
import dataclasses
import errno
import functools
import io
import itertools
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import tyro
from pydantic import BaseModel
from rich.console import Console

from jmarl.config.declaration import Section, fields_of
from jmarl.errors import ConfigError, RunError, brief, validated
from jmarl.plugins import explained, load_plugins
from jmarl.runs.terminal import NOBODY_READS, SafeStream, make_console

CACHE_ENTRY = "persistent compilation cache entry"  # in jax's warnings, of which each has its own


def read_options(given: BaseModel, prog: str, arguments: list[str]) -> dict[str, Any]:
    """The values of a configuration's fields: as typed, else as in `given`. Ranges are not checked
    here: whoever builds the configuration does so, for files and command lines alike."""
    refusal = io.StringIO()
    try:
        with contextlib.redirect_stderr(refusal):
            chosen = tyro.cli(_plain(type(given)), prog=prog, args=arguments, default=_twin(given))
    except SystemExit as stop:
        if stop.code in (None, 0):
            raise
        raise ConfigError(_sentence(refusal.getvalue())) from None
    return dataclasses.asdict(chosen)


def read_typed_options(model: type[Section], prog: str, arguments: list[str]) -> dict[str, Any]:
    """By full name (`ppo.lr`) the values of those options that were typed, and of no others."""
    values = read_options(model(), prog, arguments)
    words = {word.partition("=")[0].replace("_", "-") for word in arguments}
    found = {}
    for name, _ in fields_of(model):
        section, dot, leaf = name.replace("_", "-").rpartition(".")
        if words & {f"--{section}{dot}{leaf}", f"--{section}{dot}no-{leaf}"}:
            found[name] = functools.reduce(lambda inner, part: inner[part], name.split("."), values)
    return found


def read_run_command(model: type[BaseModel], prog: str, arguments: list[str]) -> tuple[Path, Any]:
    """`RUN --option value …`: the run's directory, and the checked options."""
    (run, *more), options = _read_runs(model, prog, arguments, most=1)
    assert not more
    return run, options


def read_runs_command(
    model: type[BaseModel], prog: str, arguments: list[str]
) -> tuple[list[Path], Any]:
    """`RUN RUN … --option value …`: the runs' directories, and the checked options."""
    return _read_runs(model, prog, arguments, most=len(arguments))


def take_plugins(arguments: list[str]) -> tuple[list[str], tuple[str, ...]]:
    """Import the plug-ins that a command line names. Returns the other arguments, and the names."""
    rest, names = list[str](), list[str]()
    words = iter(arguments)
    for word in words:
        option, equals, value = word.partition("=")
        if option not in ("--plugin", "--plugins"):
            rest.append(word)
        elif (name := value if equals else next(words, "")) and not name.startswith("-"):
            names.append(name)
        else:
            raise ConfigError(f"which plug-in? Write {option} FILE.py.")
    return rest, load_plugins(names)


def _read_runs(
    model: type[BaseModel], prog: str, arguments: list[str], most: int
) -> tuple[list[Path], Any]:
    arguments, _ = take_plugins(arguments)
    leading = list(itertools.takewhile(lambda word: not word.startswith("-"), arguments))[:most]
    if not leading:
        read_options(model(), prog, arguments or ["--help"])
        raise ConfigError(f"which run? Write {prog}.")
    options = read_options(model(), prog, arguments[len(leading) :])
    return [Path(word) for word in leading], validated(model, options)


def check_output(name: str, path: Path) -> None:
    """Fail for a file that cannot be written before any work is done for it."""
    given = f"{name}={brief(str(path))} cannot be written"
    if "\0" in str(path):
        raise RunError(f"{given}: names have no NUL.")
    if not os.path.isdir(path.parent):
        raise RunError(f"{given}: there is no directory {brief(str(path.parent))}.")
    if os.path.isdir(path):
        raise RunError(f"{given}: it is a directory.")
    if len(os.fsencode(path.name)) > os.pathconf(path.parent, "PC_NAME_MAX"):
        raise RunError(f"{given}: its name is too long for the file system.")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise RunError(f"{given}: it is read-only.")


def renamed(arguments: list[str], names: Mapping[str, str]) -> list[str]:
    """Arguments with other names for some options; `--option value` and `--option=value` alike."""
    words = (word.partition("=") for word in arguments)
    return [names.get(name, name) + equals + value for name, equals, value in words]


@contextlib.contextmanager
def command() -> Iterator[tuple[Console, Console]]:
    """What surrounds every command. Yields consoles for standard output and standard error, which
    may be closed or know only ASCII; warnings and faults are one sentence each."""
    with contextlib.ExitStack() as stack:
        before = sys.stdout, sys.stderr
        stack.callback(lambda: setattr(sys, "stdout", before[0]))
        stack.callback(lambda: setattr(sys, "stderr", before[1]))
        out, err = (SafeStream(stream or _nowhere()) for stream in before)
        sys.stdout = out  # tyro and other libraries print there
        sys.stderr = err
        console, errors = make_console(out), make_console(err, stderr=True, soft_wrap=True)
        stack.enter_context(warnings.catch_warnings())
        warnings.showwarning = _warning_sentences(errors)
        stack.callback(_check_written, out, err)
        stack.enter_context(exit_on_error(errors))
        yield console, errors


def _warning_sentences(errors: Console) -> Callable[..., None]:
    """A sentence for each warning; one for all entries of jax's cache that cannot be used."""
    known = set()

    def show(message: Warning | str, *where: object) -> None:
        del where
        text = str(message)
        if CACHE_ENTRY in text:
            if CACHE_ENTRY in known:
                return
            known.add(CACHE_ENTRY)
            text = (
                f"the cache of compiled programs cannot be used, so that they compile anew: {text}"
            )
        errors.print(text, markup=False)

    return show


def _nowhere() -> Any:
    """In place of a stream that was closed before the command began."""
    return open(os.devnull, "w", encoding="utf-8")  # until the process ends


def _check_written(out: SafeStream, err: SafeStream) -> None:
    """A reader that has gone, as `head` does, is no fault. A full disk is."""
    for stream in (out, err):
        stream.flush()
        if stream.error is not None:
            stream.discard()
    if out.error is not None and out.error.errno not in NOBODY_READS:
        err.write(f"standard output could not be written: {out.error.strerror}.\n")
        err.flush()
        raise SystemExit(1)


@contextlib.contextmanager
def exit_on_error(errors: Console) -> Iterator[None]:
    """Faults that a person can act on, in one sentence: 2 for what was asked, before anything was
    done; 1 for what came in between, and for files that cannot be written."""
    try:
        yield
    except ConfigError as error:
        errors.print(str(error), style="red", markup=False)
        raise SystemExit(2) from None
    except (RunError, OSError) as error:  # OSError: a full disk, a directory taken away
        errors.print(str(error), style="red", markup=False)
        raise SystemExit(2 if _too_long(error) else 1) from None
    except Exception as error:
        if (told := explained(error)) is None:
            raise
        errors.print(told, style="red", markup=False)
        raise SystemExit(1) from None


def _too_long(error: BaseException) -> bool:
    """Whether the fault is a name that no file system takes."""
    return isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG


@functools.cache  # tyro compares classes by identity
def _plain(section: type[BaseModel]) -> Any:
    """A dataclass with the same fields and help, free of constraints."""
    fields = []
    for name, info in section.model_fields.items():
        annotation: Any = info.annotation
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            kind = _plain(annotation)
        else:
            kind = Annotated[annotation, tyro.conf.arg(help=info.description)]
        fields.append((name, kind))
    made = dataclasses.make_dataclass(section.__name__, fields)
    made.__doc__ = section.__doc__
    return made


def _twin(model: BaseModel) -> Any:
    values = {name: getattr(model, name) for name in type(model).model_fields}
    return _plain(type(model))(
        **{name: _twin(v) if isinstance(v, BaseModel) else v for name, v in values.items()}
    )


# What Python says of text that is no number, and what is meant.
NUMBERS = {
    r"Error parsing (\S+): .*invalid literal for int\(\) with base 10: ('.*')": (
        r"\1 \2 is not a whole number"
    ),
    r"Error parsing (\S+): .*could not convert string to float: ('.*')": r"\1 \2 is not a number",
    r"Error parsing (\S+): Exceeds the limit.* value has (\d+) digits.*": (
        r"\1 has \2 digits, which is too many"
    ),
}


def _sentence(box: str) -> str:
    """tyro explains itself in a box of sections; the first is the fault, a second may guess."""
    text = "\n".join(re.sub(r"^[│╭╰]\s?|[\s│╮╯]*$", "", line) for line in box.splitlines())
    sections = [part.strip() for part in re.split(r"\n─+\n", text)]
    lines = sections[0].splitlines()
    fault = " ".join(line.strip() for line in lines if not line.startswith("─")).rstrip(".")
    guesses = re.findall(r"^\s+(--[\w.-]+)", sections[1], re.M) if len(sections) > 1 else []
    if fault.startswith("Unrecognized") and guesses:
        return f"{fault}; did you mean {guesses[0]}?"
    for words, meant in NUMBERS.items():
        fault = re.sub(words, meant, fault)
    return f"{fault}; --help lists all options."
