// Pinned memory for copies between arrays and a GPU. It is kept for the next copy, because
// returning it to the driver waits for every device. Any thread may take and give.
#pragma once
#include "../include/backend.h"

namespace shardwise {

constexpr int64_t kSmallStaging = 64 << 10;
constexpr int64_t kLargeStaging = 4 << 20;

// The smaller buffer size that holds `bytes`, which are at most kLargeStaging.
Status take_staging(const Backend* backend, int64_t bytes, void** out, ErrorText* error);
void give_staging(void* buffer, int64_t bytes);

}  // namespace shardwise
