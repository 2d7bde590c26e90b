"""Merging and taking it back beside queries and learners."""

import threading

import sqlalchemy as sa
import tables as s

from crabpath_retrievers import Feedback

QUESTION = "how do I deploy the service to the cluster?"


def test_beside_queries_and_learners(twins):
    """Nothing fails, nothing is learned about a document that others stand for."""
    failed, ended, learned = [], threading.Event(), []

    def work(name):
        try:
            while not ended.is_set():
                answer = twins.retrieve(QUESTION, k=3, namespace=name)
                found = {item.node.id for item in answer.documents}
                # What is merged between search and answer is left out, as if it were forgotten.
                assert len(found) == len(answer.documents) >= 2
                used = [answer.documents[0].node.id]  # of two twins one may stand for both
                receipt = twins.record(Feedback(answer.turn.id, 1.0, used=used))
                assert receipt.status == "applied"
                learned.append(name)
        except Exception as error:
            failed.append(error)
            raise

    threads = [threading.Thread(target=work, args=(name,)) for name in ("ann", "bob")]
    for thread in threads:
        thread.start()
    merged = 0
    for _ in range(6):
        report = twins.maintenance.run(["merge"])
        merged += report.total_changed
        twins.maintenance.undo(report.run)
    report = twins.maintenance.run(["merge"])
    ended.set()
    for thread in threads:
        thread.join(60)
    assert (failed, merged, report.total_changed) == ([], 6, 1)
    assert {"ann", "bob"} <= set(learned)
    hidden = sa.select(s.aliases.c.node)
    with twins.store.open_reader() as connection:
        for table in (s.overlay, s.weight_changes, s.pair_counts, s.edges):
            ends = table.c.source.in_(hidden) | table.c.target.in_(hidden)
            assert not connection.execute(sa.select(table).where(ends)).all()
        assert not connection.execute(sa.select(s.usage).where(s.usage.c.node.in_(hidden))).all()
        wins = connection.scalar(sa.select(sa.func.sum(s.usage.c.wins)))
    assert wins == len(learned)
