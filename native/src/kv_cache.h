// Keys and values of one sequence, laid out for attention: untouched memory costs nothing.
#pragma once

#include <string>
#include <vector>

#include "kernels.h"

// Keys as [layer][kv head][block][head_dim][64 positions], values as [layer][kv head][position][head_dim].
class KvCache {
  public:
    const int layers, capacity, kv_heads, head_dim;
    const bool half;

    KvCache(int layers, int capacity, int kv_heads, int head_dim, const std::string &type);
    ~KvCache();
    KvCache(const KvCache &) = delete;

    size_t bytes() const { return bytes_; }
    int stored(int layer) const { return stored_[layer]; }
    // Throws unless so many positions from `position` on can be stored in `layer`.
    void check_room(int layer, int position, int n) const;
    // key and value (n, kv_heads, head_dim), at positions that have been checked.
    void store(int layer, int position, int n, const float *key, const float *value);

    // Points `block` at the fp32 keys and values from position `start`, a multiple of 64; `scratch`, kept by the caller
    // from one block to the next, holds them if they are stored otherwise.
    void load(int layer, int kv_head, int start, std::vector<float> &scratch, KvBlock &block) const;

  private:
    uint8_t *block_at(bool value, int layer, int kv_head, int start) const;

    size_t element_, line_, bytes_, mapped_; // bytes of: one number, one head's block of keys or values, all, the map
    size_t blocks_;
    uint8_t *data_;
    std::vector<int> stored_;
};
