"""Exported policies: truncated, altered, with other content than their digests say."""

import io
import json
import random
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.faults import tiny
from benchmarks.faults.commands import here, in_child, misbehaved
from benchmarks.faults.trials import REFUSED, Bench, Trial, first

Members = dict[str, bytes]


def tamper(bench: Bench, kind: str) -> None:
    tiny.completed(tiny.run(4), bench.place / kind)
    in_child(bench, kind, tamper_each, bench.place / kind / tiny.RUN)


def tamper_each(bench: Bench, kind: str, run: Path) -> None:
    """Whoever reads the file refuses it; as it was written, it is taken."""
    exported = here("export", run)
    whole, chance = (run / "policy.zip").read_bytes(), bench.random(kind)
    taken = here("export", run / "policy.zip")
    wrong = first(misbehaved(exported), misbehaved(taken))
    if wrong:
        bench.tell(Trial(kind, "none", wrong))
    for fault, spoilt in _spoilt(whole, chance)[:: 6 if bench.quick else 1]:
        path = bench.place / kind / "spoilt.zip"
        path.write_bytes(spoilt)
        same = _members(spoilt) == _members(whole)  # a flipped bit may be of a date
        bench.tell(Trial(kind, fault, misbehaved(here("export", path), (0 if same else REFUSED,))))
    killed = shutil.copy(run / "policy.zip", bench.place / kind / "kept.zip")
    wrong = first(misbehaved(here("export", run, "--out", killed)))
    bench.tell(Trial(kind, "written over a whole one", wrong))


def _spoilt(whole: bytes, chance: random.Random) -> list[tuple[str, bytes]]:
    sizes = [0, 1, 30, len(whole) // 4, len(whole) // 2, len(whole) - 22, len(whole) - 1]
    found = [(f"truncated to {size * 100 // len(whole)} %", whole[:size]) for size in sizes]
    for _ in range(8):
        at = chance.randrange(len(whole))
        changed = whole[:at] + bytes([whole[at] ^ 1 << chance.randrange(8)]) + whole[at + 1 :]
        found.append((f"a bit flipped at {at * 100 // len(whole)} %", changed))
    members = _members(whole)
    found += [(fault, _zipped(change(dict(members)))) for fault, change in CHANGES.items()]
    return [*found, ("random bytes", chance.randbytes(len(whole)))]


def _members(content: bytes) -> Members:
    """None of a file that is no zip."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return {name: archive.read(name) for name in archive.namelist()}
    except Exception:  # zipfile raises many kinds
        return {}


def _zipped(members: Members) -> bytes:
    """With correct checksums of its own."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, member in members.items():
            archive.writestr(name, member)
    return content.getvalue()


def _without(name: str) -> Callable[[Members], Members]:
    return lambda members: {n: m for n, m in members.items() if n != name}


def _other_about(members: Members) -> Members:
    about = json.loads(members["about.json"]) | {"env": "mpe/simple_tag"}
    return members | {"about.json": json.dumps(about, indent=1).encode()}


CHANGES: dict[str, Callable[[Members], Members]] = {
    "programs exchanged": lambda m: m | {"greedy": m["sampled"], "sampled": m["greedy"]},
    "another world named": _other_about,
    "a program shortened": lambda m: m | {"greedy": m["greedy"][:-1]},
    "a file added": lambda m: m | {"more": b"x"},
    "no digests": _without("SHA256SUMS"),
    "no program": _without("sampled"),
    "nothing about it": _without("about.json"),
    "empty": lambda m: {},
}
