"""Requests made from the OpenAPI description, valid and not: none makes the server fail.

``CRABPATH_FUZZ`` is the number of requests of each kind to each endpoint; ``make fuzz-server``.
"""

import os

import hypothesis
import pytest
import schemathesis
from hypothesis.errors import Unsatisfiable
from langchain_core.embeddings import DeterministicFakeEmbedding
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance
from served import RIGHTS

from crabpath_retrievers import CrabPath
from crabpath_server import Access, Limits, add_token, create_app

EXAMPLES = int(os.environ.get("CRABPATH_FUZZ", "8"))


@pytest.fixture
def described(tmp_path, serve):
    """A real server as it describes itself, and how requests reach it and may do everything."""
    token = add_token(tmp_path / "t.json", ["*"], list(RIGHTS))
    with CrabPath.open(tmp_path / "m", embeddings=DeterministicFakeEmbedding(size=16)) as memory:
        many = Limits(requests_per_minute=1_000_000, feedbacks_per_hour=1_000_000)
        app = create_app(memory, access=Access.from_file(tmp_path / "t.json"), limits=many)
        address = serve(app)
        schema = schemathesis.openapi.from_url(f"{address}/openapi.json")
        yield schema, {"base_url": address, "headers": {"Authorization": f"Bearer {token}"}}


@pytest.mark.timeout(7200)
def test_no_request_makes_the_server_fail_and_answers_are_as_described(described):
    schema, place = described
    sent, failures = 0, []

    def try_requests(operation, mode):
        @hypothesis.settings(
            max_examples=EXAMPLES,
            database=None,
            deadline=None,
            suppress_health_check=list(hypothesis.HealthCheck),
        )
        @hypothesis.seed(1)
        @hypothesis.given(operation.as_strategy(generation_mode=mode))
        def send(case):
            nonlocal sent
            sent += 1
            # What the description allows may still be unusable, such as a filter; and what it does
            # not allow may be the same as something else once it is a parameter, such as "1".
            case.call_and_validate(
                **place, excluded_checks=[positive_data_acceptance, negative_data_rejection]
            )

        send()

    for found in schema.get_all_operations():
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            try:
                try_requests(found.ok(), mode)
            except Unsatisfiable:  # nothing could be wrong
                assert mode is GenerationMode.NEGATIVE
            except BaseException as error:  # all of them are shown together
                failures.append(f"{found.ok().label} {mode.value}: {error}")
    print(sent, "requests")  # noqa: T201  said where it is asked for
    assert failures == []
    assert sent > 10 * EXAMPLES
