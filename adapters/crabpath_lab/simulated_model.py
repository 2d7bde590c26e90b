"""The chat model of a run, by its name on the command line: a real one, or a simulated one.

The simulated model reads the router's prompt, judges by a rule and errs at random. What it is
asked, how often, and at what length are those of a real model; how good its judgement is, is set,
and says nothing about real models.
"""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic import ConfigDict

from crabpath_retrievers.core.text import tokenise
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.parts.chat_router.prompt import estimate_tokens

SIMULATED = "simulated"
_MIN_LETTERS = 5  # letters of a word that is looked for
_MIN_SHARED = 2


def load_chat_model(name: str) -> BaseChatModel:
    """Load a chat model.

    Args:
        name: ``provider:model`` as ``langchain.chat_models.init_chat_model`` takes it; or
            ``simulated:0.3`` for one that follows what shares words with the question, and tosses
            a coin for three candidates in ten.

    Raises:
        InvalidInputError: There is no such model, or its package is missing.
    """
    kind, _, rest = name.partition(":")
    if kind == SIMULATED:
        return SimulatedChatModel(
            rule=shares_long_words, errors=_parse_share(rest), rng=np.random.default_rng(0)
        )
    from langchain.chat_models import init_chat_model

    try:
        made: BaseChatModel = init_chat_model(name)
    except Exception as error:
        msg = f"the chat model {name!r} cannot be used: {error}"
        raise InvalidInputError(msg) from error
    return made


def shares_long_words(question: str, title: str, text: str) -> bool:
    """Whether a candidate has two long words of the question: a router without understanding."""
    asked = {word for word in tokenise(question) if len(word) >= _MIN_LETTERS}
    return len(asked.intersection(tokenise(f"{title} {text}"))) >= _MIN_SHARED


def _parse_share(text: str) -> float:
    try:
        share = float(text or 0)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        msg = f"simulated: takes a share of random decisions from 0 to 1, not {text!r}"
        raise InvalidInputError(msg)
    return share


RelevanceRule = Callable[[str, str, str], bool]
"""Whether a candidate helps, from question, title and text."""


class SimulatedChatModel(BaseChatModel):
    """Follows the candidates that its rule prefers, best ones first as they are listed."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    rule: RelevanceRule
    errors: float = 0.0
    """Share of the candidates about which a fair coin decides, in [0, 1]."""
    rng: np.random.Generator

    @property
    def _llm_type(self) -> str:
        return "simulated"

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        shown = messages[-1].text
        text = json.dumps(self._route(shown))
        given = sum(estimate_tokens(message.text) for message in messages)
        taken = estimate_tokens(text)
        usage = {"input_tokens": given, "output_tokens": taken, "total_tokens": given + taken}
        message = AIMessage(text, usage_metadata=usage)
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _route(self, shown: str) -> dict[str, Any]:
        head, _, rest = shown.partition("\n<candidates>\n")
        question = json.loads(head.partition("\n")[0].removeprefix("Question: "))
        lines = map(json.loads, rest.removesuffix("\n</candidates>").splitlines())
        follow = [
            number
            for number, title, said, *_ in lines
            if isinstance(number, int) and self._is_followed(question, title, said)
        ]
        return {"follow": follow, "drop": [], "stop": not follow, "reason": "simulated"}

    def _is_followed(self, question: str, title: str, text: str) -> bool:
        if self.rng.random() < self.errors:
            return bool(self.rng.random() < 0.5)  # noqa: PLR2004  a fair coin
        return self.rule(question, title, text)
