"""A chat model that is none: it reads the router's prompt, judges by a rule and errs at random.

It stands for a model where none can be reached. What it is asked, how often, and at what length
are those of a real one; how good its judgement is, is set, and says nothing about real ones.
"""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic import ConfigDict

from crabpath_retrievers.routing.tokens import estimated

Judge = Callable[[str, str, str], bool]
"""Whether a candidate helps, from question, title and text."""


class SimulatedModel(BaseChatModel):
    """Follows the candidates that its judge prefers, best ones first as they are listed."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    judge: Judge
    errors: float = 0.0
    """Share of the candidates about which a fair coin decides, in [0, 1]."""
    rng: np.random.Generator

    @property
    def _llm_type(self) -> str:
        return "simulated"

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        shown = messages[-1].text
        text = json.dumps(self._route(shown))
        given = sum(estimated(message.text) for message in messages)
        taken = estimated(text)
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
            if isinstance(number, int) and self._good(question, title, said)
        ]
        return {"follow": follow, "drop": [], "stop": not follow, "reason": "simulated"}

    def _good(self, question: str, title: str, text: str) -> bool:
        if self.rng.random() < self.errors:
            return bool(self.rng.random() < 0.5)  # noqa: PLR2004  a fair coin
        return self.judge(question, title, text)
