"""``python -m benchmarks NAME``."""

from benchmarks.commands import app

app(prog_name="python -m benchmarks")
