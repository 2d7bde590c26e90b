"""CrabPath before any feedback, with a chat model as router."""

from functools import partial

from langchain_core.language_models import BaseChatModel

from crabpath_lab.methods.base import Method
from crabpath_lab.methods.cold import open_cold
from crabpath_retrievers.parts.chat_router.chat_model import ChatModelRouter
from crabpath_retrievers.parts.chat_router.model_client import RouterSettings


def make_routed(model: BaseChatModel, prices: tuple[float, float]) -> Method:
    """Make the method for one model; prices are US dollars per million tokens in and out."""
    return partial(open_cold, router=ChatModelRouter(model, RouterSettings(prices=prices)))
