"""Retry of a transaction that another process has overtaken."""

from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from crabpath_retrievers.errors import ConflictError

retry_on_conflict = retry(
    retry=retry_if_exception_type(ConflictError),
    wait=wait_random_exponential(multiplier=0.01, max=0.5),
    stop=stop_after_attempt(12),
    reraise=True,
)
