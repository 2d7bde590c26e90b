"""The chat model of a run, by its name on the command line."""

import numpy as np
from langchain_core.language_models import BaseChatModel

from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.evaluation.routing.simulated_model import SimulatedModel
from crabpath_retrievers.text import tokens

SIMULATED = "simulated"
_TELLING = 5  # letters of a word that is looked for
_SHARED = 2


def model_of(name: str) -> BaseChatModel:
    """A chat model.

    Args:
        name: ``provider:model`` as ``langchain.chat_models.init_chat_model`` takes it; or
            ``simulated:0.3`` for one that follows what shares words with the question, and tosses
            a coin for three candidates in ten.

    Raises:
        InvalidInputError: There is no such model, or its package is missing.
    """
    kind, _, rest = name.partition(":")
    if kind == SIMULATED:
        return SimulatedModel(judge=shares_words, errors=_share(rest), rng=np.random.default_rng(0))
    from langchain.chat_models import init_chat_model

    try:
        made: BaseChatModel = init_chat_model(name)
    except Exception as error:
        msg = f"the chat model {name!r} cannot be used: {error}"
        raise InvalidInputError(msg) from error
    return made


def shares_words(question: str, title: str, text: str) -> bool:
    """Whether a candidate has two long words of the question: a router without understanding."""
    asked = {word for word in tokens(question) if len(word) >= _TELLING}
    return len(asked.intersection(tokens(f"{title} {text}"))) >= _SHARED


def _share(text: str) -> float:
    try:
        share = float(text or 0)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        msg = f"simulated: takes a share of random decisions from 0 to 1, not {text!r}"
        raise InvalidInputError(msg)
    return share
