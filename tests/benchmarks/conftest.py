"""A small real sample for all tests of the benchmarks, whose commands silence all logs."""

import logging

import pytest
from small_sample import beir_folder, cache, cached, small, write

__all__ = ["beir_folder", "cache", "cached", "small", "write"]


@pytest.fixture(autouse=True)
def let_logs_speak_again():
    yield
    logging.disable(logging.NOTSET)
