"""Files and values that nobody should hand in."""

import itertools
import os
import time
from pathlib import Path

from benchmarks.faults import tiny
from benchmarks.faults.commands import here, in_child, misbehaved
from benchmarks.faults.trials import REFUSED, Bench, Trial, first

SECONDS = 5.0  # of the processor, until something is refused


def _doubling(letters: str, one: str) -> str:
    """Each name stands for nine of the one before."""
    lines = [f"{letters[0]}: &{letters[0]} {one}"]
    for old, new in itertools.pairwise(letters):
        lines.append(f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]")
    return "\n".join(lines)


YAML = {
    "aliases that double": _doubling("abcdefghijklm", "[x, x, x, x, x, x, x, x, x]"),
    "aliases that double, merged": "a: &a {x: 1}\n"
    + "\n".join(
        f"{new}: &{new} {{<<: [{', '.join([f'*{old}'] * 40)}]}}"
        for old, new in zip("abcdefgh", "bcdefghi", strict=True)
    ),
    "aliases as keys": "? &a [x, y]\n: 1\n? [*a, *a]\n: 2",
    "an alias of itself": "net: &a [*a]",
    "an unknown alias": "net: *nowhere",
    "nesting of 10,000": f"net: {'[' * 10_000}{']' * 10_000}",
    "nesting of 10,000 mappings": f"net: {'{a: ' * 10_000}1{'}' * 10_000}",
    "open brackets": "[" * 100_000,
    "2 MB": f"env: {'x' * 2_000_000}",
    "a key twice": "seed: 1\nppo: {lr: 1e-3, lr: 1e-4}",
    "a tag": "seed: !!python/object/apply:os.system ['true']",
    "control characters": "seed: \x01",
    "two documents": "seed: 1\n---\nseed: 2",
    "a list": "- seed\n- 1",
    "a number": "1",
    "tabs": "net:\n\thidden: 8",
    "an unclosed quote": 'env: "mpe',
    "a key that is a number": "1: 2",
    "a key that is nothing": "null: 2",
    "a date": "num_envs: 2024-02-30",
    "a set": "net: {hidden: !!set {8}}",
    "an unknown option": "num_env: 4",
    "text for a section": "ppo: lr",
    "a list for a section": "ppo: [lr]",
    "infinity": "ppo: {lr: .inf}",
    "minus infinity": "ppo: {lr: -.inf}",
    "not a number": "ppo: {gamma: .nan}",
    "a whole number of 10,000 digits": f"num_envs: {'9' * 10_000}",
    "a hexadecimal of 9,000 digits": f"num_envs: 0x{'f' * 9_000}",
    "a fraction": "num_envs: 4.5",
    "true": "num_envs: true",
    "a seed of 2**32": f"seed: {2**32}",
    "nothing": "algorithm:",
}
BYTES = {
    "bytes that are no text": b"seed: \xff\xfe\x80",
    "zeros": b"\0" * 4096,
    "UTF-16 without a mark": "seed: 1".encode("utf-16-le"),
}
TYPED = (
    ("--num-envs", "1000000000"),
    ("--num-envs", "-1"),
    ("--num-envs", "9" * 10_000),
    ("--num-envs", "1e3"),
    ("--seed", str(2**32)),
    ("--seed", "-1"),
    ("--ppo.lr", "inf"),
    ("--ppo.lr", "nan"),
    ("--ppo.lr", "1e400"),
    ("--net.hidden", "1000000", "1000000"),
    ("--net.hidden", "0"),
    ("--env-options", "num_agents", "1000000"),
    ("--env-options", "num_agents", "-1"),
    ("--env", "mpe/nothing"),
    ("--env", ""),
    ("--total-updates", "0"),
    ("--seeds", "1000000000"),
    ("--run-dir", "x" * 300),
    ("--run-dir", "/proc/x"),
    ("--resume", "nowhere"),
    ("--nothing",),
)
SWEPT = (
    ("--grid", "lr=inf"),
    ("--grid", "lr="),
    ("--grid", "lr=1,1"),
    ("--grid", "nothing=1"),
    ("--random", "lr=log_uniform:0:1", "--samples", "2"),
    ("--random", "lr=uniform:1:inf", "--samples", "2"),
    ("--grid", f"lr={'[' * 60}"),
    ("--grid", "lr=1e-3,1e-4", "--seeds", "1000000000"),
    ("--random", "lr=uniform:0:1", "--samples", "1000000000"),
    ("--random", "lr=uniform:0:1", "--confirm-seeds", "1000000000"),
)


def refuse(bench: Bench, kind: str) -> None:
    in_child(bench, kind, refuse_each)


def refuse_each(bench: Bench, kind: str) -> None:
    place, step = bench.place / kind / "here", 10 if bench.quick else 1
    place.mkdir()
    os.chdir(place)
    preset = bench.place / kind / "preset.yaml"
    files = {name: text.encode() for name, text in YAML.items()} | BYTES
    for fault, content in list(files.items())[::step]:
        preset.write_bytes(content)
        bench.tell(refused(kind, f"YAML: {fault}", "train", str(preset)))
    tried = tiny.run(2).words[:-2]  # the last word of an option counts
    for words in TYPED[::step]:
        bench.tell(refused(kind, " ".join(words)[:60], "train", *tried, *words))
    for words in SWEPT[::step]:
        bench.tell(refused(kind, "sweep " + " ".join(words)[:60], "sweep", *words))


def refused(kind: str, fault: str, command: str, *words: str) -> Trial:
    """With one sentence, at once, and without a directory."""
    began = time.process_time()
    done = here(command, *words)
    took = time.process_time() - began
    left = sorted(path.name for path in Path().iterdir())
    problem = first(
        misbehaved(done, (REFUSED,)),
        f"it took {took:.0f} s" if took > SECONDS else "",
        "it says more than 2,000 characters" if len(done.err) > 2_000 else "",
        f"it left {left[0]!r} behind" if left else "",
    )
    return Trial(kind, fault, problem)
