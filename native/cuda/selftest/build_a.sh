#!/bin/sh
# Builds the self-test of these kernels: sh native/cuda/selftest/build_a.sh [output] [architecture], then run the output.
# On a machine with N cores the objects are compiled N at a time.
set -e
here=$(cd "$(dirname "$0")" && pwd)
output=${1:-/tmp/selftest_a}
arch=${2:-90a}
objects=$(mktemp -d)
kernels="copy fill foreach gather index_add index_keys index_put nonzero optimizer_steps pointwise pointwise_binary pointwise_unary
  radix_sort random reduce reduce_plan reduce_stats scan scatter segmented_update sort take topk transpose"
{
  for k in $kernels; do echo "$here/../kernels/$k.cu"; done
  echo "$here/../backend.cu"
  echo "$here/../devices.cu"
  for t in "$here"/selftest_a*.cu; do echo "$t"; done
} | xargs -P "$(nproc)" -I{} sh -c 'nvcc -std=c++17 -O3 -gencode arch=compute_'"$arch"',code=sm_'"$arch"' -lineinfo -c "$1" -o "$2/$(basename "$1" .cu).o"' _ {} "$objects"
nvcc -gencode arch=compute_"$arch",code=sm_"$arch" "$objects"/*.o -o "$output"
rm -r "$objects"
echo "$output"
