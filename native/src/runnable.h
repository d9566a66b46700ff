// Which instruction sets this processor has.
#pragma once

#include <vector>

#include "kernels.h"

std::vector<const Kernels *> runnable_kernels(); // the plain one first, the best last
