"""Counting tokens: by the model's own counter if it has one, else by an estimate."""

import logging
from collections.abc import Callable
from math import ceil

from langchain_core.language_models import BaseChatModel, BaseLanguageModel

from crabpath_retrievers.routing.limited import run_with_timeout

_log = logging.getLogger(__name__)
_TIMEOUT = 5.0  # seconds
_BYTES = 3.5  # UTF-8 bytes per token; slightly low, so that budgets are not exceeded


def estimate_tokens(text: str) -> int:
    """Estimated tokens of a text, for a model without a counter."""
    return ceil(len(text.encode("utf-8", "surrogatepass")) / _BYTES)


def make_token_counter(model: BaseChatModel) -> Callable[[str], int]:
    """The counter of a model, or the estimate.

    LangChain's default counter is not used: it downloads the tokenizer of GPT-2.
    """
    inherited = type(model).get_token_ids is BaseLanguageModel.get_token_ids
    inherited &= type(model).get_num_tokens is BaseLanguageModel.get_num_tokens
    if inherited and model.custom_get_token_ids is None:
        return estimate_tokens
    return _ModelCounter(model)


class _ModelCounter:
    """The counter of a model; after its first failure tokens are estimated."""

    def __init__(self, model: BaseChatModel) -> None:
        self._count: Callable[[str], int] = model.get_num_tokens
        self._called = False

    def __call__(self, text: str) -> int:
        try:
            # The first call may download tables, as tiktoken does.
            if self._called:
                tokens = self._count(text)
            else:
                tokens = run_with_timeout(lambda: self._count(text), _TIMEOUT)
        except Exception as error:
            _log.warning("the model cannot count tokens, they are estimated: %s", error)
            self._count, tokens = estimate_tokens, estimate_tokens(text)
        self._called = True
        return tokens
