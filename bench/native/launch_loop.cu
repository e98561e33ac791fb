// The raw cost of a kernel launch on this machine: the floor of every sustained rate. Prints one
// JSON object. nvcc -O2 -arch=sm_90 bench/native/launch_loop.cu -o launch_loop
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

__global__ void add8(const float* a, const float* b, float* y) {
  if (threadIdx.x < 8) y[threadIdx.x] = a[threadIdx.x] + b[threadIdx.x];
}

int main() {
  float* memory;
  cudaMalloc(&memory, 1024);
  cudaStream_t stream;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  const int burst = 20000;
  std::vector<double> times;
  for (int repeat = 0; repeat < 7; repeat++) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < burst; i++) add8<<<1, 32, 0, stream>>>(memory, memory + 8, memory + 16);
    cudaStreamSynchronize(stream);
    const double us =
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
            .count() /
        burst;
    times.push_back(us);
  }
  std::sort(times.begin(), times.end());
  std::printf("{\"name\":\"add\",\"unit\":\"us\",\"value\":%.3f,\"burst\":%d}\n",
              times[times.size() / 2], burst);
  return 0;
}
