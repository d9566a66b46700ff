"""Reads past the page cache into slots of this process: those used last stay, what a message lacks is read at once."""

from __future__ import annotations

import threading
import time

import numpy as np

from expert_worker.copies import Copies, Key, allocate, bytes_for
from expert_worker.expert_table import ExpertTable
from expert_worker.file_reader import FileReader, Outcome
from expert_worker.sources.demand import Demand
from expert_worker.sources.placed import PlacedSource
from expert_worker.sources.source import WARM_WAIT_S, Account, Displaced, Experts, distinct
from protocol.messages import I32, U8

WAIT_S = 60.0
"""For what another thread is reading: after that it is read from the mapping."""
WARM_SHARE = 4
"""A hint may take every fourth slot at most, so that hints alone never displace all that was used."""


class DirectSource(PlacedSource):
    """Slots for as many experts as a budget allows. What finds no slot comes from the files' mapping."""

    name = "direct"

    def __init__(self, table: ExpertTable, budget: int, account: Account | None = None) -> None:
        """`budget`: bytes of all slots; the `account` hears how many of them are filled."""
        self._demand = Demand()
        super().__init__(table, self._demand)
        self._budget = budget
        self._account = account
        self._copies = Copies(table)
        self._readers = FileReader(table), FileReader(table)  # of `fetch`, and of `warm`
        self._settled = threading.Condition()
        self._used: dict[Key, None] = {}  # least recently used first
        self._reading: set[Key] = set()
        self._hinted: set[Key] = set()  # filled for a hint, and not asked for yet
        self._displaced: Displaced = lambda layer, expert, by_layer: None
        self._given_up = 0  # of the budget
        self._bytes = 0  # of all slots, those being filled among them

    def settle(self) -> None:
        """Tell the account how many slots are filled: here, since it may have to wait for others."""
        if self._account is not None:
            self._account.touched(self._bytes)

    def fetch(self, layer: int, experts: I32) -> U8 | None:
        """Read what no slot has, all of it at once."""
        each = distinct(experts)
        wanted = each.tolist()
        self._table.lease(layer, wanted)
        began = time.perf_counter()
        with self._settled:
            coming = [expert for expert in wanted if (layer, expert) in self._reading]
            absent = [expert for expert in wanted if (layer, expert) not in self._copies and expert not in coming]
            claimed = self._claim(layer, absent)
        missing = np.isin(each, absent + coming).astype(np.uint8)
        self.counters.copy_hits += len(wanted) - len(absent) - len(coming)
        if claimed or coming:
            with self._demand:
                if claimed:
                    self.counters.file_read_bytes += self._fill(0, layer, claimed).bytes
                self._await({(layer, expert) for expert in coming})
            self.counters.file_reads += len(claimed)
            self.counters.file_read_us += int((time.perf_counter() - began) * 1e6)
        self._note_use(layer, wanted, claimed)
        return missing

    def missing(self, layer: int, experts: I32) -> U8:
        """Those that have no slot, not even one that is being filled; none if hints get no slots."""
        if not self._for_hints(layer):
            return np.zeros(len(experts), np.uint8)
        found = [(layer, e) not in self._copies and (layer, e) not in self._reading for e in experts.tolist()]
        return np.array(found, np.uint8)

    def displacing(self, told: Displaced) -> None:
        """See `Source`."""
        self._displaced = told

    def warm(self, layer: int, experts: Experts) -> None:
        """Read into slots what has none."""
        if not self._demand.pass_by(WARM_WAIT_S):
            return
        with self._settled:
            absent = [e for e in experts.tolist() if (layer, e) not in self._copies and (layer, e) not in self._reading]
            most = max(0, self._for_hints(layer) - len(self._hinted))
            claimed = self._claim(layer, absent[:most], self._displaced)
            self._hinted.update((layer, expert) for expert in claimed)
        if claimed:
            self._fill(1, layer, claimed)

    def shed(self, count: int) -> int:
        """Have fewer slots from now on, and give up those used least recently."""
        gone = 0
        with self._settled:
            for key in tuple(self._used):
                if gone >= count:
                    break
                memory = self._give_up(key)
                gone += 0 if memory is None else memory.nbytes
            kept = max(0, min(self._budget, self._bytes + gone) - count)  # of what is in use, or it would be again
            self._budget, self._given_up = kept, self._given_up + self._budget - kept
            self._count()
        self.counters.shed_bytes += gone
        return gone

    def grow(self, count: int) -> None:
        """Have more slots again."""
        with self._settled:
            count = min(count, self._given_up)
            self._budget, self._given_up = self._budget + count, self._given_up - count

    def close(self) -> None:
        """Give up all slots."""
        self.shed(self._bytes)
        if self._account is not None:
            self._account.close()
        for reader in self._readers:
            reader.close()

    def _claim(self, layer: int, experts: list[int], told: Displaced | None = None) -> dict[int, U8]:
        """Slots for as many of these as can be had; nobody else will read them. Called with the lock held."""
        claimed: dict[int, U8] = {}
        for expert in experts:
            slot = self._slot(layer, told)
            if slot is None:
                break
            claimed[expert] = slot
            self._reading.add((layer, expert))
        return claimed

    def _slot(self, layer: int, told: Displaced | None) -> U8 | None:
        """A new one while the budget lasts, then that of whoever was used least recently and is not leased."""
        size = bytes_for(self._table.sizes(layer))
        for key in tuple(self._used):
            if self._bytes + size <= self._budget:
                break
            victim = self._give_up(key)
            if victim is not None and told is not None:
                told(*key, layer)
            if victim is not None and victim.nbytes == size and self._bytes + size <= self._budget:
                self._bytes += size
                return victim
        if self._bytes + size > self._budget:
            return None
        try:
            memory = allocate(size)
        except MemoryError:  # others have taken it
            return None
        self._bytes += size
        return memory

    def _give_up(self, key: Key) -> U8 | None:
        copy = self._copies.take(*key)
        if copy is None:
            return None
        del self._used[key]
        self._hinted.discard(key)
        self._bytes -= copy.memory.nbytes
        return copy.memory

    def _fill(self, reader: int, layer: int, claimed: dict[int, U8]) -> Outcome:
        """Read into claimed slots; those that could not be read are given up. ExpertError if a file has changed."""
        try:
            outcome = self._copies.read(self._readers[reader], layer, list(claimed), list(claimed.values()))
            self.counters.fallbacks += outcome.fallbacks
            return outcome
        finally:
            with self._settled:
                for expert, memory in claimed.items():
                    self._reading.discard((layer, expert))
                    if (layer, expert) in self._copies:
                        self._used[layer, expert] = None
                    else:
                        self._bytes -= memory.nbytes
                        self._hinted.discard((layer, expert))
                self._settled.notify_all()

    def _await(self, keys: set[Key]) -> None:
        with self._settled:
            self._settled.wait_for(lambda: not keys & self._reading, WAIT_S)

    def _for_hints(self, layer: int) -> int:
        """How many slots hints may have that nobody has asked for yet."""
        return self._budget // WARM_SHARE // bytes_for(self._table.sizes(layer))

    def _note_use(self, layer: int, wanted: list[int], claimed: dict[int, U8]) -> None:
        """The message has its slots; what found none is brought to the mapping."""
        with self._settled:
            there = [expert for expert in wanted if (layer, expert) in self._copies]
            for expert in there:
                self._used.pop((layer, expert), None)
                self._used[layer, expert] = None
                self._hinted.discard((layer, expert))
            self._count()
        left = sorted(set(wanted) - set(there))
        self._from_files = bool(left)
        if left:
            self.counters.fallbacks += len([expert for expert in left if expert not in claimed])
            self._rest.bring(layer, np.array(left, np.int32))

    def _count(self) -> None:
        self.counters.copied_experts, self.counters.copied_bytes = len(self._used), self._bytes
