// From a type's number to its struct.
#pragma once

#include "blocks.h"
#include "weights.h"

// use(blocks::TYPE{}), whatever it returns.
template <class Use> auto with_type(TensorType type, Use use) {
    switch (type) {
    case TensorType::F32: return use(blocks::F32{});
    case TensorType::F16: return use(blocks::F16{});
    case TensorType::BF16: return use(blocks::BF16{});
    case TensorType::Q4_0: return use(blocks::Q4_0{});
    case TensorType::Q4_1: return use(blocks::Q4_1{});
    case TensorType::Q5_0: return use(blocks::Q5_0{});
    case TensorType::Q5_1: return use(blocks::Q5_1{});
    case TensorType::Q8_0: return use(blocks::Q8_0{});
    case TensorType::Q4_K: return use(blocks::Q4_K{});
    case TensorType::Q5_K: return use(blocks::Q5_K{});
    case TensorType::Q6_K: return use(blocks::Q6_K{});
    }
    refuse("type: ggml type " + std::to_string((int)type) + " has no kernel");
}
