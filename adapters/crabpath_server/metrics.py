"""Metrics of this process as text for Prometheus.

They come from a provider of the server's own, beside the one that a host may have set up.
"""

from functools import cache

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from crabpath_retrievers.core.calls import report_metrics
from crabpath_retrievers.core.processes import make_lock

_lock = make_lock()  # the collector of OpenTelemetry gives two readers each other's samples


@cache
def _open_registry() -> CollectorRegistry:
    """Open the registry of this process's metrics, shared by its applications."""
    registry = CollectorRegistry()
    reader = PrometheusMetricReader(
        disable_target_info=True, scope_info_enabled=False, registry=registry
    )
    report_metrics(MeterProvider([reader]))
    return registry


def start_metrics() -> None:
    """Start counting, unless this process does so already."""
    with _lock:
        _open_registry()


def write_metrics(accept: str) -> tuple[bytes, str]:
    """Format the metrics as a header ``Accept`` asks; also return their media type."""
    encode, kind = choose_encoder(accept)
    with _lock:
        return encode(_open_registry()), kind
