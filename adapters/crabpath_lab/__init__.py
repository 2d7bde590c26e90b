"""The laboratory: data sets, methods, scores, learning streams, trials and reports."""

from crabpath_retrievers import __version__ as _base_version
from crabpath_retrievers.core.extras import require_same_version

__version__ = "0.1.0"

require_same_version(__name__, __version__, _base_version)
