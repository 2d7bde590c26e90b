"""Metrics of this process as text for Prometheus.

They come from a provider of the server's own, beside the one that a host may have set up. Names of
those of HTTP are the semantic conventions of OpenTelemetry.
"""

from functools import cache

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import Meter, get_meter
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from crabpath_retrievers.core.calls import report_metrics
from crabpath_retrievers.core.processes import make_lock

_SCOPE = "crabpath_server"
_BUCKET_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_lock = make_lock()  # the collector of OpenTelemetry gives two readers each other's samples


class _Instruments:
    """The instruments of one meter."""

    def __init__(self, meter: Meter) -> None:
        self.active = meter.create_up_down_counter(
            "http.server.active_requests", "{request}", "Requests that are being answered"
        )
        self.duration = meter.create_histogram(
            "http.server.request.duration",
            "s",
            "Duration of requests",
            explicit_bucket_boundaries_advisory=_BUCKET_SECONDS,
        )


_instruments = [_Instruments(get_meter(_SCOPE))]


@cache
def _open_registry() -> CollectorRegistry:
    """Open the registry of this process's metrics, shared by its applications."""
    registry = CollectorRegistry()
    reader = PrometheusMetricReader(
        disable_target_info=True, scope_info_enabled=False, registry=registry
    )
    provider = MeterProvider([reader])
    report_metrics(provider)
    _instruments.append(_Instruments(provider.get_meter(_SCOPE)))
    return registry


def start_metrics() -> None:
    """Start counting, unless this process does so already."""
    with _lock:
        _open_registry()


def count_active(change: int) -> None:
    """Count a request that begins (1) or ends (-1)."""
    for instruments in _instruments:
        instruments.active.add(change)


def count_request(method: str, route: str, status: int, seconds: float) -> None:
    """Count and time an answered request; the labels have few values."""
    count_active(-1)
    labels = {"http.request.method": method, "http.route": route}
    labels["http.response.status_code"] = str(status)
    for instruments in _instruments:
        instruments.duration.record(seconds, labels)


def write_metrics(accept: str) -> tuple[bytes, str]:
    """Format the metrics as a header ``Accept`` asks; also return their media type."""
    encode, kind = choose_encoder(accept)
    with _lock:
        return encode(_open_registry()), kind
