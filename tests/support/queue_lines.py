"""The two ends of a connection as queues, for loops that are tested without sockets."""

from __future__ import annotations

import queue

from protocol.messages import Message

WITHIN_S = 10.0


class QueueLine:
    """What a worker's thread holds; the test is the other side."""

    def __init__(self) -> None:
        self.dropped = 0
        self.closed = False
        self.flushed_s = -1.0
        self._inbox: queue.Queue[Message] = queue.Queue()
        self._outbox: queue.Queue[Message] = queue.Queue()

    # --- the worker's side ------------------------------------------------------------------------------------

    def send(self, message: Message) -> bool:
        assert not self.closed
        self._outbox.put(message)
        return True

    def receive(self, timeout_s: float) -> Message | None:
        assert not self.closed
        try:
            return self._inbox.get(timeout=timeout_s) if timeout_s > 0 else self._inbox.get_nowait()
        except queue.Empty:
            return None

    def close(self, flush_s: float) -> None:
        self.closed = True
        self.flushed_s = flush_s

    # --- the test's side --------------------------------------------------------------------------------------

    def tell(self, *messages: Message) -> None:
        """Something arrives."""
        for message in messages:
            self._inbox.put(message)

    def told(self) -> Message:
        """The next thing that was sent."""
        return self._outbox.get(timeout=WITHIN_S)

    def told_so_far(self) -> list[Message]:
        """All that was sent and not looked at yet."""
        return [self._outbox.get_nowait() for _ in range(self._outbox.qsize())]
