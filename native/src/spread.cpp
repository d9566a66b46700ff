// Each layer's experts dealt to members: who keeps what it had, who gets the rest, and who hands what on to whom. The
// twin, tests/support/placing_twin.py, does the same sums in the same order.
#include <algorithm>
#include <numeric>
#include <vector>

#include "placing.h"

using namespace placing;

namespace {

// Who a layer is dealt to, and what each has of it so far.
struct Crew {
    size_t experts, members;
    const uint8_t *table; // (experts, members)
    const double *use, *entry_s, *call_s;
    std::vector<double> load; // entries of one row that each member is expected to get

    bool able(size_t expert, size_t member) const { return table[expert * members + member]; }
    double done_with(size_t member, double more) const {
        return call_s[member] + (load[member] + more) * entry_s[member];
    }
    double done(size_t member) const { return call_s[member] + load[member] * entry_s[member]; }
};

struct HandOver {
    size_t giver, expert, taker;
};

std::vector<size_t> numbers_to(size_t count) {
    std::vector<size_t> numbers(count);
    std::iota(numbers.begin(), numbers.end(), size_t(0));
    return numbers;
}

// Everybody keeps of what it had as much as is its share, the ones used most first.
void keep(int64_t *owner, const int64_t *before, const double *shares, Crew &crew) {
    std::vector<size_t> had;
    for (size_t e = 0; e < crew.experts; e++)
        if (before[e] != NOBODY && crew.able(e, before[e])) had.push_back(e);
    std::stable_sort(had.begin(), had.end(), [&](size_t a, size_t b) { return crew.use[a] > crew.use[b]; });
    for (size_t e : had) {
        const int64_t member = before[e];
        if (!(crew.load[member] + crew.use[e] <= shares[member] * (1 + CLOSE))) continue;
        owner[e] = member;
        crew.load[member] += crew.use[e];
    }
}

// Who of those who are able would be done with one more first; NOBODY if none is.
int64_t first_done(const Crew &crew, size_t expert, int64_t before) {
    int64_t first = NOBODY;
    double first_s = 0;
    for (size_t m = 0; m < crew.members; m++) {
        if (!crew.able(expert, m)) continue;
        const double done_s = crew.done_with(m, crew.use[expert]);
        if (first != NOBODY && !(done_s < first_s)) continue;
        first = (int64_t)m;
        first_s = done_s;
    }
    const bool had = first != NOBODY && before != NOBODY && crew.able(expert, before);
    return had && crew.done_with(before, crew.use[expert]) <= first_s * (1 + CLOSE) ? before : first;
}

// What nobody kept, those first that the fewest are able to take, of these those that are used most.
std::vector<size_t> left_in_order(const int64_t *owner, const int64_t *before, const Crew &crew) {
    std::vector<size_t> left, choice(crew.experts);
    for (size_t e = 0; e < crew.experts; e++) {
        if (owner[e] != NOBODY) continue;
        for (size_t m = 0; m < crew.members; m++) choice[e] += crew.able(e, m);
        left.push_back(e);
    }
    std::stable_sort(left.begin(), left.end(), [&](size_t a, size_t b) {
        if (choice[a] != choice[b]) return choice[a] < choice[b];
        if (crew.use[a] != crew.use[b]) return crew.use[a] > crew.use[b];
        return before[a] != NOBODY && before[b] == NOBODY;
    });
    return left;
}

// The shortest way by which `start` can hand on an expert to somebody who is then done sooner than it was, from its end
// to its beginning; empty if there is none.
std::vector<HandOver> path_from(size_t start, const int64_t *owner, const Crew &crew) {
    std::vector<HandOver> came(crew.members); // by taker
    std::vector<bool> seen(crew.members);
    std::vector<size_t> queue{start};
    seen[start] = true;
    const double latest_s = crew.done(start) * (1 - CLOSE);
    for (size_t at = 0; at < queue.size(); at++) {
        const size_t giver = queue[at];
        std::vector<size_t> its;
        for (size_t e = 0; e < crew.experts; e++)
            if (owner[e] == (int64_t)giver) its.push_back(e);
        for (size_t taker = 0; taker < crew.members; taker++) {
            if (seen[taker]) continue;
            auto found = std::find_if(its.begin(), its.end(), [&](size_t e) { return crew.able(e, taker); });
            if (found == its.end()) continue;
            seen[taker] = true;
            came[taker] = {giver, *found, taker};
            queue.push_back(taker);
            if (!(crew.done_with(taker, crew.use[*found]) < latest_s)) continue;
            std::vector<HandOver> path;
            for (size_t end = taker; end != start; end = came[end].giver) path.push_back(came[end]);
            return path;
        }
    }
    return {};
}

void hand_on(const HandOver &one, Crew &crew) {
    crew.load[one.giver] -= crew.use[one.expert];
    crew.load[one.taker] += crew.use[one.expert];
}

// Whether everybody on a path would be done before `done_s`.
bool is_sooner(const std::vector<HandOver> &path, double done_s, Crew crew) {
    for (const HandOver &one : path) hand_on(one, crew);
    auto sooner = [&](size_t member) { return crew.done(member) < done_s * (1 - CLOSE); };
    return std::all_of(path.begin(), path.end(),
                       [&](const HandOver &one) { return sooner(one.giver) && sooner(one.taker); });
}

// Hand one expert on from somebody to another who is then done sooner, perhaps by way of others; false if none is.
bool even_out(int64_t *owner, Crew &crew) {
    const double least = *std::min_element(crew.use, crew.use + crew.experts);
    std::vector<double> done(crew.members);
    double soonest_s = crew.done_with(0, least);
    for (size_t m = 0; m < crew.members; m++) {
        done[m] = crew.load[m] > 0 ? crew.done(m) : 0.0;
        soonest_s = std::min(soonest_s, crew.done_with(m, least));
    }
    std::vector<size_t> latest_first = numbers_to(crew.members);
    std::stable_sort(latest_first.begin(), latest_first.end(), [&](size_t a, size_t b) { return done[a] > done[b]; });
    for (size_t start : latest_first) {
        if (soonest_s >= done[start] * (1 - CLOSE)) return false;
        const std::vector<HandOver> path = path_from(start, owner, crew);
        if (path.empty() || !is_sooner(path, done[start], crew)) continue;
        for (const HandOver &one : path) {
            owner[one.expert] = (int64_t)one.taker;
            hand_on(one, crew);
        }
        return true;
    }
    return false;
}

void deal(int64_t *owner, const int64_t *before, const double *shares, Crew &crew) {
    keep(owner, before, shares, crew);
    for (size_t e : left_in_order(owner, before, crew)) {
        owner[e] = first_done(crew, e, before[e]);
        if (owner[e] != NOBODY) crew.load[owner[e]] += crew.use[e];
    }
    const uint8_t *end = crew.table + crew.experts * crew.members;
    if (std::all_of(crew.table, end, [](uint8_t able) { return able != 0; })) return;
    for (size_t turn = 0; turn < 4 * crew.experts && even_out(owner, crew); turn++) {}
}

// `total` entries, so that all who get any are done at the same time, and others would be later.
std::vector<double> shares_of(double total, const double *entry_s, const double *call_s, size_t members) {
    std::vector<size_t> nearest_first = numbers_to(members);
    std::stable_sort(nearest_first.begin(), nearest_first.end(),
                     [&](size_t a, size_t b) { return call_s[a] < call_s[b]; });
    auto slowness = [&](size_t m) { return std::max(entry_s[m], 1e-12); };
    double speed = 0, calls = 0, done_s = call_s[nearest_first[0]]; // the nearest one has a share, whatever is rounded
    for (size_t m : nearest_first) {
        speed += 1 / slowness(m);
        calls += call_s[m] / slowness(m);
        const double if_so_many_s = (total + calls) / speed;
        if (if_so_many_s >= call_s[m]) done_s = if_so_many_s;
    }
    std::vector<double> shares(members);
    for (size_t m = 0; m < members; m++) shares[m] = std::max(done_s - call_s[m], 0.0) / slowness(m);
    return shares;
}

// What is dealt: tables of (layers, experts) and of members.
struct Tables {
    size_t layers, experts, members;
    const uint8_t *able, *left; // (layers, experts, members), (layers, experts)
    const double *use, *total, *entry_s, *call_s;
    const int64_t *before, *first;
};

// One layer's, of those experts that are left, with its first member in front.
void deal_layer(const Tables &all, size_t layer, int64_t *owner) {
    const size_t first = all.first[layer], members = all.members;
    auto turned = [&](const auto *from, auto *to) {
        std::copy(from + first, from + members, to);
        std::copy(from, from + first, to + members - first);
    };
    std::vector<size_t> which;
    std::vector<uint8_t> able;
    std::vector<double> use, entry_s(members), call_s(members);
    std::vector<int64_t> before;
    turned(all.entry_s, entry_s.data());
    turned(all.call_s, call_s.data());
    for (size_t e = 0; e < all.experts; e++) {
        const size_t at = layer * all.experts + e;
        if (!all.left[at]) continue;
        which.push_back(e);
        use.push_back(all.use[at]);
        const int64_t had = all.before[at];
        before.push_back(had == NOBODY ? NOBODY : (had + (int64_t)(members - first)) % (int64_t)members);
        able.resize(able.size() + members);
        turned(all.able + at * members, able.data() + able.size() - members);
    }
    std::vector<int64_t> given(which.size(), NOBODY);
    Crew crew{
        which.size(), members, able.data(), use.data(), entry_s.data(), call_s.data(), std::vector<double>(members)};
    deal(given.data(), before.data(), shares_of(all.total[layer], entry_s.data(), call_s.data(), members).data(), crew);
    for (size_t i = 0; i < which.size(); i++)
        if (given[i] != NOBODY) owner[which[i]] = (given[i] + (int64_t)first) % (int64_t)members;
}

nb::object spread(In<uint8_t, 3> able, In<uint8_t, 2> left, In<double, 2> use, In<double, 1> total,
                  In<double, 1> entry_s, In<double, 1> call_s, In<int64_t, 2> before, In<int64_t, 1> first) {
    const size_t layers = able.shape(0), experts = able.shape(1), members = able.shape(2);
    expect(members > 0, "able: one member or more expected");
    expect_shape("left", left, {layers, experts});
    expect_shape("use", use, {layers, experts});
    expect_shape("total", total, {layers});
    expect_shape("entry_s", entry_s, {members});
    expect_shape("call_s", call_s, {members});
    expect_shape("before", before, {layers, experts});
    expect_shape("first", first, {layers});
    expect_numbers("use", use);
    expect_numbers("total", total);
    expect_numbers("entry_s", entry_s);
    expect_numbers("call_s", call_s);
    for (size_t i = 0; i < before.size(); i++) {
        const int64_t had = before.data()[i];
        expect(had >= NOBODY && had < (int64_t)members, "before: a member that is not there");
    }
    for (size_t i = 0; i < layers; i++) expect((uint64_t)first(i) < members, "first: a member that is not there");
    NewArray<int64_t> owner({layers, experts});
    std::fill_n(owner.data, layers * experts, NOBODY);
    {
        nb::gil_scoped_release release;
        const Tables all{layers,       experts,        members,       able.data(),   left.data(), use.data(),
                         total.data(), entry_s.data(), call_s.data(), before.data(), first.data()};
        for (size_t layer = 0; layer < layers; layer++) deal_layer(all, layer, owner.data + layer * experts);
    }
    return owner.object;
}

nb::object fair_shares(double total, In<double, 1> entry_s, In<double, 1> call_s) {
    const size_t members = entry_s.size();
    expect(members > 0, "entry_s: one member or more expected");
    expect_shape("call_s", call_s, {members});
    expect(std::abs(total) <= MOST, "total: a number of at most 1e30 expected");
    expect_numbers("entry_s", entry_s);
    expect_numbers("call_s", call_s);
    NewArray<double> shares({members});
    const std::vector<double> found = shares_of(total, entry_s.data(), call_s.data(), members);
    std::copy(found.begin(), found.end(), shares.data);
    return shares.object;
}

} // namespace

void bind_spread(nb::module_ &m) {
    m.def("spread", &spread, "able"_a, "left"_a, "use"_a, "total"_a, "entry_s"_a, "call_s"_a, "before"_a, "first"_a);
    m.def("fair_shares", &fair_shares, "total"_a, "entry_s"_a, "call_s"_a);
}
