"""The types of the public interface, as a user's type checker sees them."""

import subprocess
import sys
from inspect import iscoroutinefunction
from pathlib import Path

import pytest

import crabpath_retrievers
from crabpath_retrievers import CrabPath

API = Path(__file__).parent / "typing" / "api.py"


def test_public_interface_is_typed():
    """Mypy in strict mode accepts a program that uses the whole public interface."""
    root = Path(__file__).parents[1]
    command = [sys.executable, "-m", "mypy", str(API)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=root)
    assert done.returncode == 0, done.stdout


COMPONENTS = ("graph", "learning", "maintenance", "namespaces", "regions", "transfer")
_SYNCHRONOUS = {"open", "as_retriever", "runner", "models", "copy_from"}  # no one awaits these


@pytest.mark.parametrize("component", [None, *COMPONENTS])
def test_every_method_has_an_asynchronous_form(tmp_path, component):
    """Under the same name in ``memory.aio``, with the same parameters."""
    from langchain_core.embeddings import DeterministicFakeEmbedding

    with CrabPath.open(tmp_path, embeddings=DeterministicFakeEmbedding(size=8)) as memory:
        blocking = memory if component is None else getattr(memory, component)
        view = memory.aio if component is None else getattr(memory.aio, component)
        names = {
            name
            for name in dir(type(blocking))
            if name[0] != "_" and callable(getattr(type(blocking), name))
        }
        for name in names - _SYNCHRONOUS:
            form = getattr(type(view), name)
            assert iscoroutinefunction(form), name
            assert form.__doc__, name


def test_the_surface_is_small():
    """At most 24 public members, components included, beside the four parts it consists of."""
    members = {name for name in dir(CrabPath) if name[0] != "_"}
    assert len(members | set(COMPONENTS)) <= 24


def test_every_export_exists():
    """Each name is imported where it is asked for, and documented."""
    for name in crabpath_retrievers.__all__:
        assert getattr(crabpath_retrievers, name).__doc__, name
