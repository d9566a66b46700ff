// Experts dealt to holders of limited room, one after another.
#include <algorithm>
#include <vector>

#include "placing.h"

using namespace placing;

namespace {

struct Holders {
    size_t layers, experts, count;
    const uint8_t *able;       // (layers, experts, count)
    const int64_t *choice;     // (count,)
    std::vector<int64_t> room; // bytes left
    std::vector<size_t> given; // (layers, count)

    bool can(size_t holder, size_t layer, size_t expert, int64_t size) const {
        return room[holder] >= size && able[(layer * experts + expert) * count + holder];
    }
    bool comes_before(size_t a, size_t b, size_t layer) const {
        const size_t has = given[layer * count + a], other = given[layer * count + b];
        return has != other ? has < other : choice[a] < choice[b];
    }
};

// Who takes an expert: the first one that can from `turn` on, or, `evenly`, the first of those given the fewest of the
// layer, or else with the smallest choice.
int64_t taker(const Holders &all, size_t layer, size_t expert, int64_t size, size_t turn, bool evenly) {
    int64_t best = NOBODY;
    size_t one = turn % all.count;
    for (size_t i = 0; i < all.count; i++, one = one + 1 < all.count ? one + 1 : 0) {
        if (!all.can(one, layer, expert, size)) continue;
        if (best == NOBODY || all.comes_before(one, (size_t)best, layer)) best = (int64_t)one;
        if (!evenly) break;
    }
    return best;
}

void deal_all(const int64_t *order, const int64_t *turn, const int64_t *slot_bytes, size_t cells, bool evenly,
              Holders &all, int64_t *takers) {
    for (size_t i = 0; i < cells; i++) {
        const size_t layer = order[2 * i], expert = order[2 * i + 1];
        takers[i] = taker(all, layer, expert, slot_bytes[layer], (size_t)turn[i], evenly);
        if (takers[i] == NOBODY) continue;
        all.room[takers[i]] -= slot_bytes[layer];
        all.given[layer * all.count + takers[i]]++;
    }
}

nb::object deal(In<int64_t, 2> order, In<int64_t, 1> turn, In<int64_t, 1> slot_bytes, In<int64_t, 1> room,
                In<int64_t, 1> choice, In<uint8_t, 3> able, bool evenly) {
    const size_t layers = able.shape(0), experts = able.shape(1), count = able.shape(2), cells = order.shape(0);
    expect_shape("order", order, {cells, 2});
    expect_shape("turn", turn, {cells});
    expect_shape("slot_bytes", slot_bytes, {layers});
    expect_shape("room", room, {count});
    expect_shape("choice", choice, {count});
    for (size_t i = 0; i < cells; i++) {
        expect((uint64_t)order.data()[2 * i] < layers, "order: a layer that is not there");
        expect((uint64_t)order.data()[2 * i + 1] < experts, "order: an expert that is not there");
        expect(turn(i) >= 0, "turn: 0 or more expected");
    }
    expect_sizes("slot_bytes", slot_bytes);
    NewArray<int64_t> takers({cells});
    std::fill_n(takers.data, cells, NOBODY);
    if (count) {
        nb::gil_scoped_release release;
        Holders all{layers,
                    experts,
                    count,
                    able.data(),
                    choice.data(),
                    std::vector<int64_t>(room.data(), room.data() + count),
                    std::vector<size_t>(layers * count)};
        deal_all(order.data(), turn.data(), slot_bytes.data(), cells, evenly, all, takers.data);
    }
    return takers.object;
}

// With whom to swap an expert that is with one holder and was with another: an expert of that one which it had not
// before, and the first holder can have; best one that was there.
size_t partner(const int64_t *owner, const int64_t *before, const uint8_t *able, size_t experts, size_t count,
               int64_t here, int64_t there) {
    size_t found = experts;
    for (size_t other = 0; other < experts; other++) {
        if (owner[other] != there || before[other] == there || !able[other * count + here]) continue;
        if (before[other] == here) return other;
        if (found == experts) found = other;
    }
    return found;
}

// Until there is nothing to swap, as one swap may make another one possible: each brings an expert back for good.
void swap_layer(int64_t *owner, const int64_t *before, const uint8_t *able, size_t experts, size_t count) {
    for (bool again = true; again;) {
        again = false;
        for (size_t expert = 0; expert < experts; expert++) {
            const int64_t here = owner[expert], there = before[expert];
            if (here == NOBODY || there == NOBODY || here == there || !able[expert * count + there]) continue;
            const size_t other = partner(owner, before, able, experts, count, here, there);
            if (other == experts) continue;
            std::swap(owner[expert], owner[other]);
            again = true;
        }
    }
}

nb::object swapped(In<int64_t, 2> owner, In<int64_t, 2> before, In<uint8_t, 3> able) {
    const size_t layers = able.shape(0), experts = able.shape(1), count = able.shape(2);
    expect_shape("owner", owner, {layers, experts});
    expect_shape("before", before, {layers, experts});
    for (size_t i = 0; i < layers * experts; i++) {
        const int64_t last = (int64_t)count - 1;
        expect(owner.data()[i] >= NOBODY && owner.data()[i] <= last, "owner: a holder that is not there");
        expect(before.data()[i] >= NOBODY && before.data()[i] <= last, "before: a holder that is not there");
    }
    NewArray<int64_t> owners({layers, experts});
    std::copy_n(owner.data(), layers * experts, owners.data);
    {
        nb::gil_scoped_release release;
        for (size_t layer = 0; layer < layers; layer++) {
            const size_t at = layer * experts;
            swap_layer(owners.data + at, before.data() + at, able.data() + at * count, experts, count);
        }
    }
    return owners.object;
}

} // namespace

void bind_deal(nb::module_ &m) {
    m.def("swapped", &swapped, "owner"_a, "before"_a, "able"_a);
    m.def("deal", &deal, "order"_a, "turn"_a, "slot_bytes"_a, "room"_a, "choice"_a, "able"_a, "evenly"_a);
}
