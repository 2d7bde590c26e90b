"""Five procedures, each with an outdated page and a hotfix in the same words ([CrabPath] §6)."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class Topic(NamedTuple):
    """A procedure: its right page, two wrong pages, and questions about it."""

    right: str
    outdated: str
    hotfix: str
    questions: tuple[str, ...]


TOPICS: Mapping[str, Topic] = MappingProxyType(
    {
        "database": Topic(
            "Migrate the production database: take a snapshot, run the migration on a copy, then "
            "on production behind the maintenance page.",
            "Migrate the production database: stop the service, run the migration by hand on "
            "production, start the service again.",
            "Hotfix for the production database: change the column directly on production while "
            "the service runs.",
            (
                "How do I migrate the production database?",
                "Steps of a migration of the production database",
                "The production database needs a new column",
            ),
        ),
        "secrets": Topic(
            "Rotate the service secrets: write the new secret to the vault, roll the service, then "
            "revoke the old secret.",
            "Rotate the service secrets: put the new secret into the configuration file and copy "
            "it to the servers.",
            "Hotfix for service secrets: export the secret in the shell of the server and restart "
            "the service there.",
            (
                "How do I rotate the service secrets?",
                "A service secret has leaked",
                "Where does the new secret of the service go?",
            ),
        ),
        "scaling": Topic(
            "Scale the web tier: raise the minimum of the autoscaler, wait for warm instances, "
            "then lower the load limit.",
            "Scale the web tier: order two more servers and add them to the balancer by hand.",
            "Hotfix for the web tier: restart all web instances at once when the load is high.",
            (
                "How do I scale the web tier?",
                "The load of the web tier is too high",
                "The web tier needs more instances",
            ),
        ),
        "certificates": Topic(
            "Renew the certificates: let the issuer renew them, check the chain on staging, then "
            "reload the balancer.",
            "Renew the certificates: create them on your laptop and copy them to each balancer.",
            "Hotfix for certificates: switch the check of certificates off in the client until "
            "they are renewed.",
            (
                "How do I renew the certificates?",
                "The certificates run out tomorrow",
                "Clients complain about our certificates",
            ),
        ),
        "queue": Topic(
            "Drain the job queue: pause the producers, let the workers finish, then move what is "
            "left to the dead-letter queue.",
            "Drain the job queue: stop the workers and delete the jobs that are left in the queue.",
            "Hotfix for the job queue: start twenty more workers until the queue is empty.",
            (
                "How do I drain the job queue?",
                "The job queue does not get empty",
                "What do I do with the jobs left in the queue?",
            ),
        ),
    }
)


def load_procedures() -> dict[str, str]:
    """Load the fifteen pages by id."""
    return {
        f"{name} {kind}": getattr(topic, kind)
        for name, topic in TOPICS.items()
        for kind in ("right", "outdated", "hotfix")
    }
