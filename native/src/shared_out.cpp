// Entries of sampled rows, shared out among those who have their experts, and when these are done.
#include <algorithm>
#include <vector>

#include "placing.h"

using namespace placing;

namespace {

// Who has which expert.
struct Who {
    std::vector<size_t> holders, start{0};
    const size_t *begin(size_t expert) const { return holders.data() + start[expert]; }
    const size_t *end(size_t expert) const { return holders.data() + start[expert + 1]; }
    bool is_one(size_t expert) const { return end(expert) - begin(expert) == 1; }
};

// Entries of one row: what just one has is its, the others go one by one to whoever would be done with it first.
void share_out(const int32_t *row, size_t k, const Who &who, const double *entry_s, const double *call_s,
               int64_t *entries) {
    for (size_t i = 0; i < k; i++)
        if (who.is_one(row[i])) entries[*who.begin(row[i])]++;
    auto done_s = [&](size_t h) { return call_s[h] + (double)(entries[h] + 1) * entry_s[h]; };
    for (size_t i = 0; i < k; i++) {
        if (who.is_one(row[i])) continue;
        const size_t *first = who.begin(row[i]);
        for (const size_t *h = first; h < who.end(row[i]); h++)
            if (done_s(*h) < done_s(*first)) first = h;
        entries[*first]++;
    }
}

nb::object shared_out(In<int32_t, 2> ids, In<uint8_t, 2> able, In<double, 1> entry_s, In<double, 1> call_s) {
    const size_t samples = ids.shape(0), k = ids.shape(1), experts = able.shape(0), holders = able.shape(1);
    expect_shape("entry_s", entry_s, {holders});
    expect_shape("call_s", call_s, {holders});
    expect_numbers("entry_s", entry_s);
    expect_numbers("call_s", call_s);
    for (size_t i = 0; i < ids.size(); i++)
        expect((uint32_t)ids.data()[i] < experts, "ids: an expert that is not there");
    Who who;
    for (size_t e = 0; e < experts; e++) {
        for (size_t h = 0; h < holders; h++)
            if (able.data()[e * holders + h]) who.holders.push_back(h);
        expect(who.holders.size() > who.start.back(), "able: somebody for each expert expected");
        who.start.push_back(who.holders.size());
    }
    NewArray<int64_t> all({samples, holders});
    {
        nb::gil_scoped_release release;
        for (size_t s = 0; s < samples; s++)
            share_out(ids.data() + s * k, k, who, entry_s.data(), call_s.data(), all.data + s * holders);
    }
    return all.object;
}

nb::object done_s(In<int64_t, 2> entries, In<double, 1> entry_s, In<double, 1> call_s, double send_s,
                  size_t first_member) {
    const size_t samples = entries.shape(0), holders = entries.shape(1);
    expect_shape("entry_s", entry_s, {holders});
    expect_shape("call_s", call_s, {holders});
    NewArray<double> all({samples, holders});
    {
        nb::gil_scoped_release release;
        for (size_t s = 0; s < samples; s++) {
            const int64_t *has = entries.data() + s * holders;
            double *done = all.data + s * holders;
            auto finish = [&](size_t h, size_t sent) {
                done[h] = has[h] > 0 ? (double)sent * send_s + call_s(h) + (double)has[h] * entry_s(h) : 0.0;
            };
            size_t sent = 0;
            for (size_t h = first_member; h < holders; h++) finish(h, sent += has[h] > 0);
            for (size_t h = 0; h < std::min(first_member, holders); h++) finish(h, sent);
        }
    }
    return all.object;
}

} // namespace

void bind_shared_out(nb::module_ &m) {
    m.def("shared_out", &shared_out, "ids"_a, "able"_a, "entry_s"_a, "call_s"_a);
    m.def("done_s", &done_s, "entries"_a, "entry_s"_a, "call_s"_a, "send_s"_a, "first_member"_a);
}
