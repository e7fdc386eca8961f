"""The package as a whole: who imports whom, what stays light, how long a file may be."""

import ast
import importlib.metadata
import pathlib
import re
import subprocess
import sys
import tomllib

import pytest

import mha_lib
from mha_lib import runtime

PACKAGE = pathlib.Path(mha_lib.__file__).parent
ROOT = pathlib.Path(__file__).parent.parent

# module -> the modules of the package that it may import; a folder stands for all files in it
IMPORTS = {
    "__init__": set(),
    "rules": set(),
    "numpy_attention": {"rules"},
    "torch_attention": {"rules", "projections"},
    "projections": {"rules"},
    "layers": {"rules"},
    "ledger": {"rules"},
    "runtime": set(),
    "plots": set(),
    "checks": {"checks", "rules", "numpy_attention", "torch_attention", "projections", "layers", "ledger"},
    "decoder": {"torch_attention", "layers", "runtime"},
}
# light on purpose: they must load in a blink, also where only NumPy is installed
LIGHT = ["rules", "numpy_attention", "projections", "layers", "ledger"]


def imports_of(text):
    """The modules of mha_lib that a source text imports, at whatever depth."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are written out in full"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name.split(".")[1] for name in found if name.startswith("mha_lib.")}


def test_imports_go_one_way():
    seen = set()
    for path in PACKAGE.rglob("*.py"):
        module = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        seen.add(module)
        assert imports_of(path.read_text(encoding="utf-8")) <= IMPORTS[module], path.name
    assert seen >= set(IMPORTS) - {"checks", "decoder"}


def test_the_table_of_imports_has_no_circle():
    allowed = {module: set(targets) - {module} for module, targets in IMPORTS.items()}
    while free := [module for module, targets in allowed.items() if not targets]:
        allowed = {module: targets - set(free) for module, targets in allowed.items() if module not in free}
    assert not allowed


def test_an_import_the_wrong_way_would_be_seen():
    hidden = "def f():\n    from mha_lib.plots import show\n    import mha_lib.ledger as l\n"
    assert imports_of(hidden) == {"plots", "ledger"}
    assert imports_of("from mha_lib import rules\nimport numpy.linalg") == {"rules"}


def modules_after(code):
    """What a fresh Python has loaded after running the code."""
    code += "; import sys; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert not ran.stderr
    return set(ran.stdout.split())


@pytest.mark.parametrize("module", ["mha_lib", *(f"mha_lib.{name}" for name in LIGHT)])
def test_importing_loads_neither_torch_nor_matplotlib_nor_ipython(module):
    assert not {"torch", "matplotlib", "IPython"} & modules_after(f"import {module}")


def test_plots_loads_ipython_only_to_display():
    loaded = modules_after("import mha_lib.plots as plots; plots.plot_sublayer()")
    assert "matplotlib" in loaded and not {"IPython", "torch", "matplotlib.pyplot"} & loaded


@pytest.mark.parametrize("name", ["numpy_attention", "torch_attention"])
def test_an_attention_file_is_read_in_one_sitting(name):
    assert len((PACKAGE / f"{name}.py").read_text(encoding="utf-8").splitlines()) < 250


def test_versions_are_written_in_one_tone():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == mha_lib.__version__
    wanted = sum(project["optional-dependencies"].values(), project["dependencies"])
    ranges = dict(line.split(">=") for line in wanted if ">=" in line)
    assert {name: ".".join(map(str, least)) for name, least in runtime.NEEDS.items()} == ranges
    pins = dict(re.findall(r"^([\w-]+)==([\d.]+)", (ROOT / "requirements.txt").read_text(encoding="utf-8"), re.M))
    for name, least in runtime.NEEDS.items():
        assert tuple(int(part) for part in pins[name].split(".")[:2]) >= least


def test_the_map_names_every_module():
    named = set(re.findall(r"^    (\w+)  +\w", mha_lib.__doc__, re.M))
    assert named == {path.name.removesuffix(".py") for path in PACKAGE.iterdir()
                     if path.suffix == ".py" or (path / "__init__.py").exists()} - {"__init__"}


def test_every_public_function_says_what_it_does():
    for path in PACKAGE.glob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        assert ast.get_docstring(tree), path.name
        for node in tree.body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name[0] != "_":
                assert ast.get_docstring(node), f"{path.name}: {node.name}"


def test_the_installed_package_is_this_one():
    try:
        installed = importlib.metadata.version("mha_lib")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("mha_lib is not installed here, it is run from its folder")
    assert installed == mha_lib.__version__
