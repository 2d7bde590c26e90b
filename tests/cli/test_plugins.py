"""Distributions add commands by entry points; one that fails or replaces a command is left out."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from crabpath_retrievers import __version__

pytestmark = pytest.mark.slow

ADD = """
def register(app):
    @app.command("{name}")
    def act() -> None:
        print("done by the plug-in")

    @app.command("other")
    def act_too() -> None:
        print("and another")
"""


@pytest.fixture
def run(tmp_path):
    """A function that runs the command line beside the distributions of ``tmp_path``."""

    def start(*words):
        paths = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
        return subprocess.run(
            [sys.executable, "-m", "crabpath_retrievers", *words],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": paths},
        )

    return start


@pytest.fixture
def install(tmp_path):
    """A function that installs a distribution with one module, which adds commands."""

    def write(name, version, module, text):
        facts = tmp_path / f"{name.replace('-', '_')}-{version}.dist-info"
        facts.mkdir()
        (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}")
        (facts / "entry_points.txt").write_text(f"[crabpath.commands]\na = {module}:register\n")
        file = tmp_path.joinpath(*module.split(".")).with_suffix(".py")
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)

    return write


def test_a_plug_in_adds_its_commands(run, install):
    install("acme-crab", "1.0", "acme_crab", ADD.format(name="acme"))
    done = run("acme")
    assert (done.stdout, done.stderr) == ("done by the plug-in\n", "")


FAIL = """
import typer

from crabpath_retrievers import {error}

group = typer.Typer()

@group.command("deep")
@group.command("deeper")
def fail() -> None:
    raise {error}("the plug-in [says] why")

def register(app):
    app.command("shallow")(fail)
    app.add_typer(group, name="group")
"""


@pytest.mark.slow
@pytest.mark.parametrize(("error", "code"), [("InvalidInputError", 2), ("StoreError", 1)])
def test_an_error_of_a_plug_in_is_one_sentence(run, install, error, code):
    """As errors of our own commands are, also in a group."""
    install("acme-crab", "1.0", "acme_crab", FAIL.format(error=error))
    for words in (["shallow"], ["group", "deep"]):
        done = run(*words)
        assert (done.returncode, done.stderr) == (code, "Error: the plug-in [says] why\n")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["info", "doctor", "ab", "history", "serve"])
def test_a_plug_in_must_not_replace_a_command(run, install, name):
    """Of the base, of a part or a group: it adds none, and one sentence says so."""
    install("acme-crab", "1.0", "acme_crab", ADD.format(name=name))
    done = run(name, "--help")
    said = f"acme-crab 1.0 adds no commands: it would replace {name} of crabpath"
    said += "; upgrade or uninstall it\n"
    assert (done.returncode, done.stderr) == (0, said)
    assert "done by" not in done.stdout
    assert "No such command 'other'" in run("other").stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "register = None",
        "import nothing_of_this_name",
        "exit('bye')",
        "raise OSError('a\\n\\n  b')",
    ],
)
def test_a_plug_in_that_fails_is_named_by_its_distribution(run, install, text):
    install("acme-crab", "1.0", "acme_crab", text)
    done = run("--version")
    assert done.stdout == f"crabpath {__version__}\n"
    assert re.fullmatch(
        r"acme-crab 1\.0 adds no commands: \w+: .+; upgrade or uninstall it\n", done.stderr
    ), done.stderr


@pytest.mark.slow
def test_a_part_of_another_version_says_one_thing(run, install):
    """Which distribution to upgrade, in its commands and in the help, and nowhere else."""
    for part in ("server", "lab"):
        init = Path(find_spec(f"crabpath_{part}").origin).read_text("utf-8")
        other = re.sub(r'__version__ = ".*"', '__version__ = "99.0"', init)
        install(f"crabpath-{part}", "99.0", f"crabpath_{part}.__init__", other)
    upgrade = "upgrade the older one, pip install 'crabpath-retrievers==99.0'"
    for part, command in (("server", "serve"), ("lab", "ab"), ("lab", "eval")):
        said = (
            f"crabpath-{part} 99.0 does not work with crabpath-retrievers {__version__}: {upgrade}"
        )
        for words in ([command, "m"], [command, "--help"], ["--help"]):
            done = run(*words)
            shown = " ".join((done.stdout + done.stderr).replace("│", " ").split())
            assert shown.count(said) == 1, shown
            assert "pip install" not in shown.replace(upgrade, "")
            assert "missing" not in shown
    done = run("--version")
    assert (done.stdout, done.stderr) == (f"crabpath {__version__}\n", "")
