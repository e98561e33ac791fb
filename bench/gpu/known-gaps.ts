/**
 * Why rows miss their goals, and what was tried, by the beginning of a row's name. The report shows
 * the text of each row that misses its goal.
 */
export const knownGaps: Readonly<Record<string, string>> = {
  'matmul nt, bfloat16, 4096 cubed':
    'Limited by power: the tensor cores work 95 % of the time. Pairs vary from 0.87 to 1.00; ' +
    "ours is a kernel of cuBLASLt, PyTorch's the fastest that max-autotune tries. Tried, " +
    "beside PyTorch's eager mode: own tiles of 128 x 256 1.00, of 128 x 208 with two " +
    'alternating warpgroups 0.98, 128 x 192 1.08 (5.3 waves), 128 x 128 0.94 to 0.99.',
  'matmul nt, bfloat16, 8192 x 14336 x 4096':
    'Limited by power: the tensor cores work 96 % of the time. Pairs vary from 0.92 to 1.00.',
  'matmul nn, bfloat16, 8192 x 4096 x 14336':
    'Limited by power: both sides run at 1,425 to 1,485 of 1,980 MHz. Pairs vary from 0.94 ' +
    'to 1.05. In bursts of two products, at the full clock, it takes 1,201 us against 1,169. ' +
    'Tried: tiles of 128 x 128 to 128 x 256, alternating and in pairs, in groups of 4 to 16, ' +
    'and all algorithms that cuBLASLt proposes; the table has the fastest.',
  'matmul tn, bfloat16, 14336 x 4096 x 8192':
    'Limited by power. Pairs vary from 0.97 to 1.04, runs from 0.98 to 1.02, whether tiles ' +
    'are assigned beforehand or by a counter.',
  'matmul nt, bfloat16, 2048 cubed':
    '1.019 and 1.021 in two runs; pairs vary from 0.95 to 1.05. It is one wave of 128 tiles ' +
    'on 132 multiprocessors, so the start and the end of the kernel decide. Tried: clusters ' +
    'of two 1.02 to 1.05; prefetching the first stages into L2 before the previous kernel ' +
    'ends takes 0.2 to 3 us more.',
  'matmul nt, bfloat16, 1000 x 3000 x 6216':
    'Pairs vary from 0.95 to 1.02. It is one wave of 128 blocks, with 1000 rows padded to ' +
    '1024 and 3000 columns to 3072, and the fastest configuration that the tuner tries. With ' +
    'max-autotune PyTorch sometimes finds a faster kernel.',
  'matmul nt, bfloat16, 512 x 4096 x 14336':
    'Both sides run the same kernel of cuBLASLt, limited by power; pairs vary from 0.89 to ' +
    '1.04. Tried: own tiles of 128 x 128 1.01 to 1.06, 128 x 256 split in two 1.18, clusters ' +
    'of four with sums through distributed shared memory 2.1.',
  'matmul nt, bfloat16, 16 x 14336 x 4096':
    'Runs vary from 87 to 89 %. cuBLASLt has the fastest kernel of the table. Tried: 112 ' +
    'columns a block (stream), which uses 128 of 132 multiprocessors, 32.7 us; small blocks ' +
    'that load fragments from memory 38.0. PyTorch replays a graph, whose kernels follow ' +
    'each other more closely.',
  'matmul nt, bfloat16, 1 x 4096 x 4096':
    "The bytes alone take 7.9 us, 0.69 to 0.86 of PyTorch's time with max-autotune, which " +
    'finds kernels of 9.1 to 11.5 us from run to run. Tried: a warp for a column 11.2 us, a ' +
    'block for a column 9.1 and for four 9.0 (alone, with fixed strides; 9.5 in the ' +
    'library), a share of k for each multiprocessor (stream) 12.0 to 16.3.',
  'matmul nt, bfloat16, 16 x 4096 x 4096':
    'The bytes alone take 7.9 us. It runs one block on each multiprocessor; small blocks ' +
    'that load fragments from memory take 12.6 to 14.5 us.',
  'matmul nt, bfloat16, 128 x 4096 x 4096':
    'The bytes alone take 8.1 us. The fastest own kernel uses clusters that share k (14.6 ' +
    'us); a proposal of cuBLASLt takes 13.9 to 14.5.',
  "matmul nt, float32 as 'tf32x3', 4096 cubed":
    'Limited by power. Pairs vary from 0.47 to 0.50 since its two small products are one ' +
    '(0.51 to 0.53 before). Of 1,390 us in long runs, splitting the operands takes some 100 ' +
    'and the large product, in eight parts, 530; other proposals of cuBLASLt for these take ' +
    '2 to 440 us more.',
  "matmul nt, float32 as 'high', 4096 cubed":
    'Both sides run the same kernel of cuBLASLt, limited by power.',
  'layer norm, bfloat16, 32768 x 4096':
    'Both sides run at 96 % of the copy rate. Tried: an evict-first hint for what is read ' +
    'and written 137 us, two vectors a thread 143; alone, with a fixed row length, two ' +
    'vectors and 40 registers 129.5.',
  'layer norm, bfloat16, 16384 x 768':
    '87 % of the copy rate; the bytes alone take 11.8 us. Tried: prefetching rows into L2 ' +
    '14.3 us, which helps only rows that L2 has; launches that do not overlap 1.3 us more; ' +
    'no L2 hints 15.4; means and squares in one reduction 13.8; two rows a warp 14.3 to 17; ' +
    'persistent rings of warps (25.5 against 18.4 us at 65536 x 256).',
  'layer norm backward, bfloat16, 8192 x 4096':
    'The rows take 58 us, the sums of gw and gb over blocks the rest. Tried: sums by ' +
    'clusters of two (no change here; 237 to 231 us for 16384 columns), by clusters of four ' +
    '(115 us, because some blocks have no place), neighbouring rows in a block, and shared ' +
    'memory that keeps a third block off a multiprocessor until the previous kernel ends ' +
    '(62.1 against 61.5).',
  'layer norm backward, bfloat16, 8192 x 16384':
    'The rows take 225 us, 84 % of the copy rate; the sums over 132 blocks take the rest. ' +
    'Tried: w from shared memory (264 to 237), sums by clusters of two (231).',
  'cross entropy and gradient':
    'Its kernel takes 1,200 us. Ten small kernels count targets, add the losses and read the ' +
    'incoming gradient: 19 us with overlapping launches, 28 without. Tried for the kernel: ' +
    'evict-first stores 1,242 instead of 1,218 in all, blocks that end with their row 1,248, ' +
    '256 to 448 threads 1,228 to 1,582, one block a multiprocessor 1,485 to 1,651, sums sent ' +
    'into the memory of all blocks instead of cluster barriers 1,218.',
  'AdamW, the 148 tensors':
    "The bytes alone allow 0.80 of PyTorch's time; it runs at 99 % of the copy rate. Tried: " +
    '256 threads 839 to 864 us, chunks of 2048 to 8192 elements 831 to 867, one word or four ' +
    'at a time 836 to 1,024, 8 consecutive elements a thread 902, bulk copies through shared ' +
    'memory 877 to 1,442.',
  'matmul, small and odd sizes':
    '0.972 and 0.973; 0.947 to 0.957 in runs without max-autotune, which finds a faster ' +
    'kernel for 512 x 4096 x 14336 and sometimes for 1000 x 3000 x 6216.',
  'host time of':
    'A loop of raw launches alone takes 2.7 to 4.5 us on these hosts; beside it in one run ' +
    '(`npm run bench -- cuda`), add takes 0.4 to 0.7 us more. Hosts differ by a third from ' +
    'run to run, for PyTorch too.',
};

/** @internal */
export function gapOf(row: string): string {
  return Object.entries(knownGaps).find(([start]) => row.startsWith(start))?.[1] ?? '';
}
