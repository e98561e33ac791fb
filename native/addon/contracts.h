// What a kernel requires of its operands, checked before it runs: the `operands` of its entry in
// lib/ops, compiled into a table. Commands from lib/ops always fit. The check turns words from
// anywhere else, and a wrong shape rule, into an error instead of an access outside a tensor.
#pragma once
#include "../include/kernel_call.h"

namespace shardwise {

// Views must already be known to lie inside their storages. Reads sizes, dtypes, addresses where
// they are known, and parameters, no data.
Status check_contract(const KernelCall& call, const KernelEntry* kernels, ErrorText* error);

// Whether the kernel reads nothing of what its outputs held.
bool overwrites_outputs(int32_t kernel);

// Whether values of inputs are places in other operands, so that addresses matter.
bool has_indices(int32_t kernel);

}  // namespace shardwise
