"""Which package may import which, and what pure packages leave to others.

Imports are read from the source, lazy ones, those for type checkers and module names in strings
included.
"""

import ast
import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "jmarl"
# from the bottom to the top: a package imports itself and those before it
LAYERS = (
    ("",),  # errors, literals, stats, types
    ("config",),
    ("kernels",),
    ("envs",),
    ("networks",),
    ("policies",),
    ("learning",),
    ("references",),
    ("algorithms",),
    ("execution",),
    ("runs",),
    ("views",),
    ("evaluation",),
    ("presentation",),
    ("replays",),
    ("reports", "sweeps"),  # peers
    ("commands",),
    ("api",),
)
LAYER = {name: i for i, names in enumerate(LAYERS) for name in names}
PURE = ("kernels", "envs", "networks", "policies", "learning", "references")
COMMANDS = ("train", "evaluate", "sweep", "render", "report", "export", "import_torch")
REGISTRATIONS = ("jmarl.registry", "jmarl.config.algorithms")  # name what others import by name
TOP = ("__init__", "__main__", "api", *COMMANDS)


def room_of(module):
    """`jmarl.learning.returns` → `learning`; `jmarl.errors` → `` (the vocabulary of all)."""
    parts = module.split(".")[1:]
    if not parts or parts[0] in TOP:
        return "api"
    return parts[0] if parts[0] in LAYER else ""


def modules(root=PACKAGE):
    """Every module's dotted name and syntax tree."""
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root.parent).with_suffix("").parts
        name = ".".join(part for part in parts if part != "__init__") or "jmarl"
        yield name, ast.parse(path.read_text(encoding="utf-8"))


def imported(tree, makers=True):
    """Dotted names below `jmarl` that a module mentions in imports or strings. `makers`: also in
    strings of the form module:attribute."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "jmarl":
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.split(".")[0] == "jmarl")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            named = re.findall(rf"^(jmarl\.[a-z_.]+){'(?::.*)?' if makers else ''}$", node.value)
            yield from (name for name in named if name.split(".")[1] not in COMMANDS)


def violations(found=None):
    bad = []
    for name, tree in found or modules():
        own = room_of(name)
        if own == "api":
            continue
        for other in imported(tree, makers=name not in REGISTRATIONS):
            target = room_of(other)
            if LAYER[target] > LAYER[own] or (LAYER[target] == LAYER[own] and target != own):
                bad.append(f"{name} imports {other}")
    return bad


FORBIDDEN_CALLS = {
    "open", "print", "jax.jit", "jit", "time.time", "time.perf_counter", "input",
    "jax.debug.print", "jax.debug.callback", "jax.pure_callback", "jax.experimental.io_callback",
}  # fmt: skip
FORBIDDEN_IMPORTS = {"pathlib", "time", "datetime", "rich", "os", "subprocess", "logging"}
FORBIDDEN_METHODS = {"read_text", "write_text", "read_bytes", "write_bytes"}


def effects(found=None):
    """What pure packages do though they should not."""
    bad = []
    for name, tree in found or modules():
        if room_of(name) not in PURE:
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Call | ast.Attribute | ast.Name):
                called = ast.unparse(node.func) if isinstance(node, ast.Call) else ast.unparse(node)
                if called in FORBIDDEN_CALLS and isinstance(node, ast.Call | ast.Attribute):
                    bad.append(f"{name} calls {called}")
                if called.rpartition(".")[2] in FORBIDDEN_METHODS:
                    bad.append(f"{name} calls {called}")
            elif isinstance(node, ast.Import | ast.ImportFrom):
                names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
                names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
                forbidden = [n for n in names if n.split(".")[0] in FORBIDDEN_IMPORTS]
                forbidden += [n for n in names if n.startswith("jmarl.config")]
                bad += [f"{name} imports {n}" for n in forbidden]
    return bad


def test_packages_import_only_what_lies_below_them():
    assert violations() == []


def test_pure_packages_have_no_effects():
    assert effects() == []


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("jmarl.envs.base", "from jmarl.policies.base import Policy"),
        ("jmarl.learning.returns", "def f():\n    from jmarl import runs"),
        ("jmarl.config.options", "import jmarl.learning.ppo_loss"),
        ("jmarl.reports.page", "from jmarl.sweeps import plan"),
        ("jmarl.envs.base", "HOME = 'jmarl.runs.loop'"),
        ("jmarl.config.options", "MAKER = 'jmarl.algorithms.mat:make_transformer'"),
        ("jmarl.config.algorithms", "import jmarl.algorithms.mat"),
        ("jmarl.runs.loop", "import jmarl"),
        ("jmarl.errors", "from jmarl.config.options import Section"),
        ("jmarl.runs.loop", "if TYPE_CHECKING:\n    import jmarl.commands.train"),
    ],
)
def test_an_upward_import_is_found(name, source):
    assert violations([(name, ast.parse(source))])


@pytest.mark.parametrize(
    "source",
    [
        "print(1)",
        "import time",
        "from pathlib import Path",
        "f = jax.jit(g)",
        "@jax.jit\ndef f(): ...",
        "x.read_text()",
        "from jmarl.config.train_config import Config",
        "jax.debug.print('x')",
    ],
)
def test_an_effect_is_found(source):
    assert effects([("jmarl.learning.returns", ast.parse(source))])


def test_what_is_allowed_is_not_reported():
    allowed = "from jmarl.envs.base import Env\nfrom jmarl.learning import losses\nimport jax"
    assert violations([("jmarl.learning.trainer", ast.parse(allowed))]) == []
    assert effects([("jmarl.learning.trainer", ast.parse(allowed))]) == []
    assert effects([("jmarl.runs.loop", ast.parse("print(1)"))]) == []
