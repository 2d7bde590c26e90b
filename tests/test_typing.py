"""The types of the public interface, as a user's type checker sees them."""

import subprocess
import sys
from pathlib import Path

API = Path(__file__).parent / "typing" / "api.py"


def test_public_interface_is_typed():
    """Mypy in strict mode accepts a program that uses the whole public interface."""
    root = Path(__file__).parents[1]
    command = [sys.executable, "-m", "mypy", str(API)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=root)
    assert done.returncode == 0, done.stdout
