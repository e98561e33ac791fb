// Which configuration computes a product: what was measured on this GPU (a table), near it, or else
// a rule (matmul.cu).
#pragma once
#include "matmul_config.h"

namespace shardwise::cuda {

enum class MatmulSource : uint8_t { Rule, Near, Table };

struct MatmulChoice {
  // the fastest, and the fastest of our kernels, for where the library is not there
  MatmulConfig best, own;
  MatmulSource source = MatmulSource::Rule;
};

// For the native thread of a stream; what it was once asked for costs a look into a small cache,
// without a lock or an allocation.
MatmulChoice choose_matmul(const MatmulShape& shape, const Stream& stream);

// Replaces the table of a device. A line for each product: its shape, the fastest configuration,
// the fastest of our own:
//   bfloat16 nt 1 4096 4096 4096 library:1 wgmma:128x192-turns
// The first line may be "library 130100": of another version, the first algorithm is taken instead
// of the one that the table names. Fails where a line cannot be read, and then leaves the table
// that was there.
Status load_matmul_table(int32_t device, const char* text, ErrorText* error);

// The names of the configurations worth measuring for a product that is told as in a table, one a
// line. Returns how many; 0 for what is no product.
int32_t matmul_configs(int32_t device, const char* problem, char* out, int32_t bytes);

// Keeps what computed the device's last product, and with SHARDWISE_DEBUG=matmul prints it where it
// is new.
void record_matmul(const MatmulProblem& p, const MatmulConfig& config, MatmulSource source,
                   int32_t device);
// Of a product that has nothing to choose: only prints.
void record_matmul(const MatmulProblem& p, const char* kernel);
// "wgmma:128x192-turns table": the last product's configuration and where that is from. Empty
// before the first.
void last_matmul(int32_t device, char* out, int32_t bytes);

}  // namespace shardwise::cuda
