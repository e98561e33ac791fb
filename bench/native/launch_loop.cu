// The raw cost of a kernel launch on this machine: the floor of every sustained rate. Prints one JSON object.
// nvcc -O2 -arch=sm_90 bench/native/launch_loop.cu -o launch_loop
#include <chrono>
#include <cstdio>

__global__ void add8(const float* a, const float* b, float* y) {
  if (threadIdx.x < 8) y[threadIdx.x] = a[threadIdx.x] + b[threadIdx.x];
}

int main() {
  float* memory;
  cudaMalloc(&memory, 1024);
  cudaStream_t stream;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  const int burst = 20000;
  double best = 1e9;
  for (int repeat = 0; repeat < 6; repeat++) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < burst; i++) add8<<<1, 32, 0, stream>>>(memory, memory + 8, memory + 16);
    cudaStreamSynchronize(stream);
    const double us = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() / burst;
    if (us < best) best = us;
  }
  std::printf("{\"name\":\"raw launch cuda\",\"burst\":%d,\"usTotal\":%.3f}\n", burst, best);
  return 0;
}
