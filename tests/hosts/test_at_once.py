"""A hundred questions at once on one event loop."""

import asyncio

from blockbuster import blockbuster_ctx

QUESTIONS = [
    "Were Scott Derrickson and Ed Wood of the same nationality?",
    "What government position was held by the woman who portrayed Corliss Archer?",
    "What science fantasy series has companion books about enslaved worlds?",
]


async def test_a_hundred_at_once_block_nobody_and_get_their_own_answers(retriever):
    """As one by one; the loop goes on beside them."""
    alone = {q: [d.id for d in retriever.invoke(q)] for q in QUESTIONS}
    asked = [QUESTIONS[number % len(QUESTIONS)] for number in range(100)]
    ticks = 0

    async def tick():
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    beside = asyncio.create_task(tick())
    with blockbuster_ctx():
        answers = await asyncio.gather(*[retriever.ainvoke(question) for question in asked])
    beside.cancel()
    assert [[d.id for d in answer] for answer in answers] == [alone[question] for question in asked]
    assert ticks > 5
    turns = {answer[0].metadata["crabpath"]["turn_id"] for answer in answers}
    assert len(turns) == 100
