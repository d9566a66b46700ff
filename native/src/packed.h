// Rows to and from their places in a group (packed_layout.h).
#pragma once

#include "weights.h"

// Row `r` (0..15) of a group of rows of `columns`: as stored in GGUF files.
void pack_row(TensorType type, const uint8_t *row, int columns, uint8_t *group, int r);
void unpack_row(TensorType type, const uint8_t *group, int r, int columns, uint8_t *row);
