// What a kernel takes for granted of its operands, checked before it runs. Commands from lib/ops
// always fit; the check is for words from anywhere else, and for a shape rule that has a hole: both
// end in an error, not outside a tensor's memory.
#pragma once
#include "../include/kernel_call.h"

namespace shardwise {

// Views must already be known to lie inside their storages. Reads sizes, dtypes and parameters, no
// data.
Status check_contract(const KernelCall& call, const KernelEntry* kernels, ErrorText* error);

}  // namespace shardwise
