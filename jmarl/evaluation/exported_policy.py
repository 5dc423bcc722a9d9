"""An exported policy: a zip of StableHLO programs with parameters inside, of what they need, and of
the digests of both.

`about.json` names the inputs of the programs `greedy` and `sampled`. `SHA256SUMS` has the form that
`sha256sum --check` reads.
"""

import hashlib
import io
import json
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from jmarl.errors import ConfigError

ABOUT, SUMS = "about.json", "SHA256SUMS"
PROGRAMS = ("greedy", "sampled")


class ExportedPolicy(NamedTuple):
    """`(obs, action_mask, episode_start, key_data, memory) → (action, memory)`, twice."""

    about: dict[str, Any]
    greedy: Callable[..., Any]
    sampled: Callable[..., Any]


def packed(about: Mapping[str, Any], programs: Mapping[str, bytes]) -> bytes:
    """The zip's bytes."""
    members = {ABOUT: json.dumps(about, indent=1).encode(), **programs}
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, member in (members | {SUMS: _sums(members)}).items():
            archive.writestr(name, member)
    return content.getvalue()


def unpacked(path: Path) -> dict[str, bytes]:
    """The zip's members; a file that is not as it was written is refused."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
    except OSError as error:
        raise ConfigError(f"policy {str(path)!r} cannot be read: {error.strerror}.") from None
    except Exception as error:  # zipfile raises many kinds
        raise _damaged(path, str(error) or type(error).__name__) from None
    sums = members.pop(SUMS, None)
    if members.keys() != {ABOUT, *PROGRAMS}:
        raise _damaged(path, f"it does not consist of {ABOUT}, {', '.join(PROGRAMS)}, {SUMS}")
    if sums is None:
        raise ConfigError(f"policy {str(path)!r} has no {SUMS}; export its run once more.")
    if sums != _sums(members):
        raise _damaged(path, f"its content is not what {SUMS} says")
    return members


def load_exported(path: str | Path) -> ExportedPolicy:
    """Read what `python -m jmarl.export` wrote."""
    from jax import export

    members = unpacked(Path(path))
    programs = (export.deserialize(bytearray(members[name])).call for name in PROGRAMS)
    return ExportedPolicy(json.loads(members[ABOUT]), *programs)


def _sums(members: Mapping[str, bytes]) -> bytes:
    lines = (f"{hashlib.sha256(members[n]).hexdigest()}  {n}\n" for n in sorted(members))
    return "".join(lines).encode()


def _damaged(path: Path, reason: str) -> ConfigError:
    return ConfigError(f"policy {str(path)!r} is damaged: {reason}. Export its run once more.")
