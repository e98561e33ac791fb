// Chooses the configuration of a product: the one measured on this GPU (a table), the nearest
// measured one, or else a rule (matmul.cu).
#pragma once
#include "matmul_config.h"

namespace shardwise::cuda {

enum class MatmulSource : uint8_t { Rule, Near, Table };

struct MatmulChoice {
  // the fastest, and the fastest of our kernels for use without the library
  MatmulConfig best, own;
  MatmulSource source = MatmulSource::Rule;
};

// For the native thread of a stream. A repeated product costs a look-up in a small cache, without a
// lock or an allocation.
MatmulChoice choose_matmul(const MatmulShape& shape, const Stream& stream);

// Replaces the table of a device. A line for each product: its shape, the fastest configuration,
// the fastest of our own:
//   bfloat16 nt 1 4096 4096 4096 library:1 wgmma:128x192-turns
// The first line may be "library 130100", the version of cuBLASLt; with another version the first
// algorithm replaces the one in the table. Fails if a line is malformed, and then keeps the earlier
// table.
Status load_matmul_table(int32_t device, const char* text, ErrorText* error);

// Writes the names of the configurations worth measuring for a product in the form of a table, one
// a line. Returns their number; 0 if the text is not a product.
int32_t matmul_configs(int32_t device, const char* problem, char* out, int32_t bytes);

// Stores the configuration of the device's last product, and with SHARDWISE_DEBUG=matmul prints it
// if it is new.
void record_matmul(const MatmulProblem& p, const MatmulConfig& config, MatmulSource source,
                   int32_t device);
// For a product without a choice: only prints.
void record_matmul(const MatmulProblem& p, const char* kernel);
// The last product's configuration and the source of the choice, "wgmma:128x192-turns table". Empty
// before the first.
void last_matmul(int32_t device, char* out, int32_t bytes);

}  // namespace shardwise::cuda
