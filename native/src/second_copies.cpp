// Who else gets the experts that are used most. The twin, tests/support/placing_twin.py, does the same sums in the same
// order.
#include <algorithm>
#include <unordered_map>
#include <vector>

#include "placing.h"

using namespace placing;

namespace {

struct Tables {
    size_t layers, experts, holders;
    In<int64_t, 1> serials, team, slot_bytes, first;
    In<double, 1> entry_s;
    In<uint8_t, 3> able; // (layers, experts, holders)
    In<double, 2> use;
    std::unordered_map<int64_t, int64_t> columns{}; // by serial number

    int64_t column(int64_t serial) const {
        auto found = columns.find(serial);
        return found == columns.end() ? NOBODY : found->second;
    }
};

struct Cell {
    size_t layer, expert;
    double use;
    int64_t first; // whose it is
};

// What has an owner, that which is used most first.
std::vector<Cell> cells_of(const Tables &tables, In<int64_t, 2> owner) {
    std::vector<Cell> cells;
    for (size_t i = 0; i < owner.size(); i++) {
        if (owner.data()[i] < 0) continue;
        const int64_t first = tables.column(owner.data()[i]);
        expect(first != NOBODY, "owner: a holder that is not there");
        cells.push_back({i / tables.experts, i % tables.experts, tables.use.data()[i], first});
    }
    std::stable_sort(cells.begin(), cells.end(), [](const Cell &a, const Cell &b) { return a.use > b.use; });
    return cells;
}

struct State {
    const Tables &tables;
    std::vector<int64_t> room;  // bytes left; -1: any number of them
    std::vector<double> busy_s; // (layers, holders): when each is done with what it is expected to do of a layer

    double *busy(const Cell &cell) { return busy_s.data() + cell.layer * tables.holders; }
    double share_s(const Cell &cell, size_t holder) const { return cell.use / 2 * tables.entry_s(holder); }

    bool can(const Cell &cell, size_t holder) const {
        const int64_t team = tables.team(holder);
        return (int64_t)holder != cell.first && !(team >= 0 && team == tables.team(cell.first)) &&
               (room[holder] < 0 || room[holder] >= tables.slot_bytes(cell.layer)) &&
               tables.able.data()[(cell.layer * tables.experts + cell.expert) * tables.holders + holder];
    }

    // Whoever of those who can is done first; among equals who had it, then the first from another one on in each
    // layer.
    int64_t taker(const Cell &cell, int64_t had) {
        const double *busy_s = busy(cell);
        int64_t best = NOBODY;
        size_t one = tables.first(cell.layer);
        for (size_t i = 0; i < tables.holders; i++, one = one + 1 < tables.holders ? one + 1 : 0) {
            if (!can(cell, one)) continue;
            const bool sooner = best == NOBODY || busy_s[one] < busy_s[best];
            if (sooner || (busy_s[one] == busy_s[best] && (int64_t)one == had)) best = (int64_t)one;
        }
        const bool keeps = best != NOBODY && had != NOBODY && can(cell, (size_t)had) &&
                           busy_s[had] <= busy_s[best] + share_s(cell, (size_t)had);
        return keeps ? had : best;
    }

    void give(const Cell &cell, size_t holder) {
        busy(cell)[cell.first] -= share_s(cell, (size_t)cell.first);
        busy(cell)[holder] += share_s(cell, holder);
        if (room[holder] >= 0) room[holder] -= tables.slot_bytes(cell.layer);
    }
};

void copy_all(const Tables &tables, State &state, In<int64_t, 2> owner, In<int64_t, 2> before, int64_t count,
              int64_t *also) {
    for (const Cell &cell : cells_of(tables, owner)) {
        if (count <= 0) return;
        const size_t at = cell.layer * tables.experts + cell.expert;
        const int64_t one = state.taker(cell, before.size() ? tables.column(before.data()[at]) : NOBODY);
        if (one == NOBODY) continue;
        state.give(cell, (size_t)one);
        also[at] = tables.serials((size_t)one);
        count--;
    }
}

nb::object second_copies(In<int64_t, 2> owner, In<int64_t, 2> before, In<int64_t, 1> serials, In<int64_t, 1> team,
                         In<int64_t, 1> room, In<int64_t, 1> slot_bytes, In<double, 1> entry_s, In<uint8_t, 3> able,
                         In<double, 2> use, In<double, 2> busy_s, In<int64_t, 1> first, int64_t count) {
    const size_t layers = owner.shape(0), experts = owner.shape(1), holders = serials.size();
    if (before.size()) expect_shape("before", before, {layers, experts});
    expect_shape("team", team, {holders});
    expect_shape("room", room, {holders});
    expect_shape("slot_bytes", slot_bytes, {layers});
    expect_shape("entry_s", entry_s, {holders});
    expect_shape("able", able, {layers, experts, holders});
    expect_shape("use", use, {layers, experts});
    expect_shape("busy_s", busy_s, {layers, holders});
    expect_numbers("entry_s", entry_s);
    expect_numbers("use", use);
    expect_numbers("busy_s", busy_s);
    expect_sizes("slot_bytes", slot_bytes);
    expect_shape("first", first, {layers});
    for (size_t i = 0; i < layers; i++) expect((uint64_t)first(i) < holders, "first: a holder that is not there");
    NewArray<int64_t> also({layers, experts});
    std::fill_n(also.data, layers * experts, NOBODY);
    Tables tables{layers, experts, holders, serials, team, slot_bytes, first, entry_s, able, use};
    for (size_t i = 0; i < holders; i++)
        expect(tables.columns.emplace(serials(i), i).second, "serials: each once expected");
    State state{tables, std::vector<int64_t>(room.data(), room.data() + holders),
                std::vector<double>(busy_s.data(), busy_s.data() + busy_s.size())};
    {
        nb::gil_scoped_release release;
        copy_all(tables, state, owner, before, count, also.data);
    }
    return also.object;
}

} // namespace

void bind_second_copies(nb::module_ &m) {
    m.def("second_copies", &second_copies, "owner"_a, "before"_a, "serials"_a, "team"_a, "room"_a, "slot_bytes"_a,
          "entry_s"_a, "able"_a, "use"_a, "busy_s"_a, "first"_a, "count"_a);
}
