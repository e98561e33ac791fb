/**
 * Why rows stay short of their goals, and what was tried: by what their names begin with. Shown by
 * the report where the goal is not reached.
 */
export const notes: Readonly<Record<string, string>> = {
  'matmul nt, bfloat16, 4096 cubed':
    'Limited by power: its tensor cores are at work 95 % of the time; 0.87 to 1.00 from pair to pair, a kernel of cuBLASLt on our side, the best of what max-autotune tries on the other. Tried: its own tiles of 128 x 256 1.00, of 128 x 208 in turns 0.98, 128 x 192 1.08 (5.3 waves), 128 x 128 0.94 to 0.99, each beside the eager mode of PyTorch.',
  'matmul nt, bfloat16, 8192 x 14336 x 4096':
    'Limited by power: its tensor cores are at work 96 % of the time; 0.92 to 1.00 from pair to pair.',
  'matmul nn, bfloat16, 8192 x 4096 x 14336':
    'Limited by power: both sides run at 1,425 to 1,485 of 1,980 MHz; 0.94 to 1.05 from pair to pair. In bursts of two products, at the full clock, 1,201 us against 1,169. Tried: the tiles 128 x 128 to 128 x 256 in turns and in pairs, in groups of 4 to 16, and all algorithms that cuBLASLt proposes; the table has the fastest.',
  'matmul tn, bfloat16, 14336 x 4096 x 8192':
    'Limited by power; 0.97 to 1.04 from pair to pair, 0.98 to 1.02 from run to run, whether its tiles are dealt out beforehand or taken from a counter.',
  'matmul nt, bfloat16, 2048 cubed':
    '1.019 and 1.021 in two runs, 0.95 to 1.05 from pair to pair. One wave of 128 tiles on 132 multiprocessors: beginning and end of a kernel are what it can lose. Tried: clusters of two 1.02 to 1.05, the first stages asked of L2 before the kernel before ends 0.2 to 3 us more.',
  'matmul nt, bfloat16, 1000 x 3000 x 6216':
    '0.95 to 1.02 from pair to pair. One wave of 128 blocks, 1000 rows for 1024 and 3000 columns for 3072; the fastest of those that the tuner tries. With max-autotune PyTorch at times finds a faster kernel.',
  'matmul nt, bfloat16, 512 x 4096 x 14336':
    'The same kernel of cuBLASLt on both sides, limited by power: 0.89 to 1.04 from pair to pair. Tried: its own tiles of 128 x 128 1.01 to 1.06, 128 x 256 split in two 1.18, clusters of four with sums through distributed shared memory 2.1.',
  'matmul nt, bfloat16, 16 x 14336 x 4096':
    '87 to 89 % from run to run. cuBLASLt is the fastest that the table has; 112 columns a block (stream) 32.7 us, where 128 of 132 multiprocessors work; small blocks that load fragments from memory, 38.0. PyTorch replays a graph, whose kernels follow closer.',
  'matmul nt, bfloat16, 1 x 4096 x 4096':
    "The bytes alone take 7.9 us, 0.69 to 0.86 of PyTorch's time with max-autotune, which finds kernels of 9.1 to 11.5 us from run to run. Tried: a warp for a column 11.2 us, a block for a column 9.1 and for four 9.0 (alone, with fixed strides; as it is 9.5), all multiprocessors with a share of k (stream) 12.0 to 16.3.",
  'matmul nt, bfloat16, 16 x 4096 x 4096':
    'The bytes alone take 7.9 us. By a block a multiprocessor; small blocks that load fragments from memory take 12.6 to 14.5.',
  'matmul nt, bfloat16, 128 x 4096 x 4096':
    'The bytes alone take 8.1 us; of its own kernels clusters that share k are the fastest (14.6 us), a proposal of cuBLASLt 13.9 to 14.5.',
  "matmul nt, float32 as 'tf32x3', 4096 cubed":
    'Limited by power; 0.47 to 0.50 from pair to pair since its two small products are one (0.51 to 0.53 before). Of 1,390 us in long runs some 100 split the operands and 530 are the large product in eight parts; other proposals of cuBLASLt for these take 2 to 440 us more.',
  "matmul nt, float32 as 'high', 4096 cubed":
    'The same kernel of cuBLASLt on both sides, limited by power.',
  'layer norm, bfloat16, 32768 x 4096':
    '96 % of copy on both sides. Tried: L2 told to give up first what was read and written 137 us, two vectors a thread 143; alone, with a fixed row length, two vectors and 40 registers 129.5.',
  'layer norm, bfloat16, 16384 x 768':
    '87 % of copy: the bytes alone take 11.8 us. Tried: rows asked of L2 before their turn 14.3 us, which helps only where L2 has them; without launches that overlap 1.3 us more, L2 left to itself 15.4, means and squares merged at once 13.8, two rows a warp 14.3 to 17, persistent rings of warps (25.5 against 18.4 us at 65536 x 256).',
  'layer norm backward, bfloat16, 8192 x 4096':
    'The rows take 58 us, the sums of gw and gb over blocks the rest. Tried: sums by clusters of two (no change here, 237 to 231 us for 16384 columns), of four (115 us: some blocks have no place), neighbouring rows for a block, shared memory that lets no third block onto a multiprocessor while the kernel before ends (62.1 against 61.5).',
  'layer norm backward, bfloat16, 8192 x 16384':
    'The rows take 225 us, 84 % of copy; the sums over 132 blocks the rest. Tried: w from shared memory (264 to 237), sums by clusters of two (231).',
  'cross entropy and gradient':
    '1,200 us are its kernel; ten small ones count targets, add the losses and look at the incoming gradient, 19 us with launches that overlap (28 without). Tried for the kernel: stores that L2 is to give up first 1,242 for 1,218 of all, blocks that end with their row 1,248, 256 to 448 threads 1,228 to 1,582, one block a multiprocessor 1,485 to 1,651, sums sent into the memory of all blocks in place of barriers of the cluster 1,218.',
  'AdamW, the 148 tensors':
    "The bytes alone allow 0.80 of PyTorch's time; it runs at 99 % of copy. Tried: 256 threads 839 to 864 us, chunks of 2048 to 8192 elements 831 to 867, one word or four at a time 836 to 1,024, 8 elements in a row a thread 902, bulk copies through shared memory 877 to 1,442.",
  'matmul, small and odd sizes':
    '0.972 and 0.973; 0.947 to 0.957 in runs without max-autotune, which finds a faster kernel for 512 x 4096 x 14336 and at times for 1000 x 3000 x 6216.',
  'host time of':
    'A raw launch loop alone takes 2.7 to 4.5 us on these hosts; in the same run as one (`npm run bench -- cuda`), add takes 0.4 to 0.7 us more. Hosts differ by a third from run to run, PyTorch on them as well.',
};

/** @internal */
export function noteOf(row: string): string {
  return Object.entries(notes).find(([start]) => row.startsWith(start))?.[1] ?? '';
}
