"""A weights process that damages the first pieces of experts on their way, as many as EXPERTMESH_TEST_DAMAGE says."""

from __future__ import annotations

import os
import sys
from dataclasses import replace

import expert_worker.weights.main as weights
from expert_worker.weights.giving import Giving
from protocol.fingerprint import SAMPLE_BYTES
from protocol.messages import FetchPiece, Message, PieceBytes


class Damaging(Giving):
    """Flips a bit of what was summed up before."""

    _left = int(os.environ["EXPERTMESH_TEST_DAMAGE"])

    def answer(self, message: Message) -> Message | None:
        answer = super().answer(message)
        if not isinstance(answer, PieceBytes) or not isinstance(message, FetchPiece):
            return answer
        of_a_head = message.offset < self.offer.heads[message.file] or message.bytes == SAMPLE_BYTES
        if of_a_head or self._left == 0:
            return answer
        self._left -= 1
        data = answer.data.copy()
        data[len(data) // 2] ^= 1
        return replace(answer, data=data)


if __name__ == "__main__":
    weights.Giving = Damaging  # type: ignore[attr-defined]
    sys.exit(weights.main())
