// `write NAME CODE` keeps code in the folder that the environment names; `read NAME` prints it, or
// fails.
#include <cstdio>
#include <cstring>

#include "../../../native/cuda/fused/code_files.h"

int main(int count, char** given) {
  using namespace shardwise::cuda::fused;
  if (count == 4 && !std::strcmp(given[1], "write")) return write_code(given[2], given[3]), 0;
  std::string code;
  if (count != 3 || std::strcmp(given[1], "read") || !read_code(given[2], &code)) return 1;
  std::printf("%s", code.c_str());
  return 0;
}
