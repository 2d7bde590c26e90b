"""How long a context is."""

import math
from collections.abc import Iterable

from crabpath_retrievers.config import RankSettings


def tokens(texts: Iterable[str]) -> int:
    """Tokens of these texts, counted as budgets are where no counter is given."""
    length = RankSettings().characters_per_token
    return sum(math.ceil(len(text) / length) for text in texts)
