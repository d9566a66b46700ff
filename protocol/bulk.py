"""What both ends of a bulk connection agree on beside its messages."""

from __future__ import annotations

BULK_FRAME_BYTES = 2 << 20
"""Of any frame on bulk: twice MAX_PIECE_BYTES. This module is for whoever loads no messages, too."""
ASKED_FRAME_BYTES = 512 << 10
"""The same of any that a weights process takes in: offers have a byte for each expert, and questions are small. What
strangers have said and it has not read yet lies in its memory."""
WINDOW = 8
"""Pieces that a worker asks for before the first has come."""
QUEUE = 2 * WINDOW
"""Messages that wait for a worker, or of one: who asks for more gets no more."""
DEFAULT_MB_S = 100.0
MAX_MB_S = 100_000.0
"""Megabytes a second that a weights process gives to all workers together."""
