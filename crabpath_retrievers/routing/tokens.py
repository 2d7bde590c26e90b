"""How many tokens a text has, by the model's own counter where it has one at hand."""

import logging
from collections.abc import Callable
from math import ceil

from langchain_core.language_models import BaseChatModel, BaseLanguageModel

from crabpath_retrievers.routing.limited import limited

_log = logging.getLogger(__name__)
_WAIT = 5.0  # seconds
_BYTES = 3.5  # of UTF-8 per token: a little less than usual, so that budgets hold


def estimated(text: str) -> int:
    """Tokens of a text for a model that cannot count."""
    return ceil(len(text.encode("utf-8", "surrogatepass")) / _BYTES)


def counter(model: BaseChatModel) -> Callable[[str], int]:
    """Counts tokens as the model does, or estimates them.

    LangChain's default counter is not used: it loads the tokenizer of GPT-2 from the network.
    """
    inherited = type(model).get_token_ids is BaseLanguageModel.get_token_ids
    inherited &= type(model).get_num_tokens is BaseLanguageModel.get_num_tokens
    if inherited and model.custom_get_token_ids is None:
        return estimated
    return _Own(model)


class _Own:
    """The counter of a model, given up for good when it fails."""

    def __init__(self, model: BaseChatModel) -> None:
        self._count: Callable[[str], int] = model.get_num_tokens
        self._tried = False

    def __call__(self, text: str) -> int:
        try:
            # The first time tiktoken, for one, loads its tables from the network.
            found = self._count(text) if self._tried else limited(lambda: self._count(text), _WAIT)
        except Exception as error:
            _log.warning("the model cannot count tokens, they are estimated: %s", error)
            self._count, found = estimated, estimated(text)
        self._tried = True
        return found
