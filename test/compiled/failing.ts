/**
 * Tests that fail if their bodies are compiled, each with the reason. They assert on what a graph
 * does not repeat. `npm run test:compiled` fails if one of them passes.
 */
import type { BackendName } from '../../lib/compile/backends.js';

export interface Failing {
  /** Below test/. */
  readonly file: string;
  /** With the names of the suites. */
  readonly title: string;
  readonly reason: string;
  readonly backends: readonly BackendName[];
  /** Whether it passes with some numbers that it draws. */
  readonly isByChance: boolean;
}

const DECOMPOSED: readonly BackendName[] = ['aot_eager_decomp_partition'];
const AOT: readonly BackendName[] = ['aot_eager', ...DECOMPOSED, 'inductor'];
const ALL: readonly BackendName[] = ['eager', ...AOT];

const listed = (
  reason: string,
  file: string,
  title: string,
  backends: readonly BackendName[] = ALL,
): Failing => ({ file, title, reason, backends, isByChance: reason === ROUNDING });

/** Why: graphs repeat no JavaScript. */
const COUNTS = 'it counts or keeps what JavaScript does that is part of a graph';
/** Why: graphs free memory at other times. */
const MEMORY = 'it counts bytes, and a graph keeps others';
/** Why: the modules of a graph do not run. */
const NAMES = 'it names the modules and functions that run, and a graph runs none';

/** Why: what a graph makes is freed by the scope of its call, and nothing else is. */
const SCOPES = 'a graph keeps other tensors at the end of a scope';

/** Why: ops that run at once are not replaced, such as those that a checkpoint computes again. */
const ROUNDING = 'it compares ops with the simpler ops of a graph, which round differently';

const NESTED = 'parallel/activation-checkpoint/nested-checkpoints.test.ts';

/** Tests of nested checkpoints that compare with a function without one. */
const nested = [
  'a tensor and have an argument',
  'all that they use',
  'an argument that they change',
  'a tensor that backward needs before them',
  'the results of each other',
  'tensors of two checkpoints around them',
].flatMap((kind) => [
  `checkpoints in checkpoints give the gradients of the functions where these close over ${kind}`,
  `checkpoints in checkpoints run again for each pass of a retained graph where they close over ${kind}`,
]);

export const failing: readonly Failing[] = [
  ...nested.map((title) => listed(ROUNDING, NESTED, title, DECOMPOSED)),
  listed(
    MEMORY,
    NESTED,
    'checkpoints in checkpoints free what they close over when backward has used it',
    ['aot_eager', ...DECOMPOSED],
  ),
  listed(
    SCOPES,
    NESTED,
    'a checkpoint of a module that keeps a table reads it again where it went through keep()',
  ),
  listed(
    SCOPES,
    NESTED,
    'a checkpoint of a module that keeps a table says so where it did not',
    AOT,
  ),
  ...['a private field', 'a closure', 'a private field beside a property'].map((kind) =>
    listed(
      SCOPES,
      'parallel/fully-shard/results.test.ts',
      `a sharded module whose forward returns a tensor in ${kind}, freed by a scope, says what is followed`,
    ),
  ),
  listed(
    COUNTS,
    'parallel/activation-checkpoint/checkpoint-wrapper.test.ts',
    'checkpointWrapper computes the gradients of the model, and runs each block once more',
  ),
  listed(
    MEMORY,
    'parallel/activation-checkpoint/checkpoint-memory.test.ts',
    'the memory of a checkpoint lowers the memory of activations to that of arguments, as FakeTensorMode computes it',
    AOT,
  ),
  listed(
    MEMORY,
    'parallel/activation-checkpoint/checkpoint-memory.test.ts',
    'the memory of a checkpoint frees what it recomputed as soon as backward has used it',
    DECOMPOSED,
  ),
  listed(
    ROUNDING,
    'parallel/activation-checkpoint/checkpoint.test.ts',
    'checkpoint gives the results and gradients of the function',
    DECOMPOSED,
  ),
  listed(
    ROUNDING,
    'parallel/activation-checkpoint/checkpoint.test.ts',
    'checkpoint gives gradients to tensors that the function closes over',
    DECOMPOSED,
  ),
  listed(
    ROUNDING,
    'parallel/activation-checkpoint/checkpoint.test.ts',
    'checkpoint nests: each level recomputes what the one inside needs',
    DECOMPOSED,
  ),
  listed(
    ROUNDING,
    'parallel/activation-checkpoint/selective.test.ts',
    'createSelectiveCheckpointContexts keeps the results of ops by name: backward does not run them again',
    DECOMPOSED,
  ),
  listed(
    MEMORY,
    'parallel/data-parallel/reduction.test.ts',
    'the reduction of DistributedDataParallel copies each gradient once, into its bucket, and keeps no other memory for it',
    AOT,
  ),
  listed(
    COUNTS,
    'parallel/flat-param/gathers.test.ts',
    'a flat parameter is gathered in time with {}',
  ),
  listed(
    COUNTS,
    'parallel/flat-param/gathers.test.ts',
    'a flat parameter is gathered in time with {"forwardPrefetch":true}',
  ),
  listed(
    COUNTS,
    'parallel/flat-param/gathers.test.ts',
    'a flat parameter is gathered in time with {"backwardPrefetch":"BACKWARD_POST"}',
  ),
  listed(
    COUNTS,
    'parallel/flat-param/gathers.test.ts',
    'a flat parameter is gathered in time with {"backwardPrefetch":null}',
  ),
  listed(
    COUNTS,
    'parallel/flat-param/gathers.test.ts',
    'a flat parameter is gathered in time with {"shardingStrategy":"SHARD_GRAD_OP"}',
  ),
  listed(
    COUNTS,
    'parallel/flat-param/gathers.test.ts',
    'a flat parameter has no whole memory between steps with FULL_SHARD',
  ),
  listed(
    COUNTS,
    'parallel/flat-param/gathers.test.ts',
    'a flat parameter has no whole memory between steps with SHARD_GRAD_OP',
  ),
  listed(
    COUNTS,
    'parallel/flat-param/steps.test.ts',
    'a step of a FullyShardedDataParallel computes without gradients, and keeps nothing',
  ),
  listed(
    COUNTS,
    'parallel/flat-param/limit-all-gathers.test.ts',
    'limitAllGathers of true hands memory from gather to gather',
  ),
  listed(
    COUNTS,
    'parallel/flat-param/limit-all-gathers.test.ts',
    'limitAllGathers of false frees memory when compute has run',
  ),
  listed(
    COUNTS,
    'parallel/flat-param/limit-all-gathers.test.ts',
    'limitAllGathers of undefined hands memory from gather to gather',
  ),
  listed(
    COUNTS,
    'parallel/flat-param/steps.test.ts',
    'a step of a FullyShardedDataParallel uses its shard itself where nothing is divided, and notices that it was changed',
  ),
  listed(
    COUNTS,
    'parallel/fully-shard/gathers.test.ts',
    'large parameters of fullyShard have the values of their dtype in compute, as copies have',
  ),
  listed(
    COUNTS,
    'parallel/fully-shard/states.test.ts',
    'a whole parameter that the program keeps cannot be read after forward; the error names the module and says what to do',
  ),
  listed(
    NAMES,
    'parallel/fully-shard/states.test.ts',
    'ranks whose parameters differ learn it from the first gather, which names the module and the sizes',
  ),
  listed(
    NAMES,
    'parallel/train-gpt.test.ts',
    'training a GPT communicates two reductions for each block in forward and two in backward',
  ),
  listed(
    NAMES,
    'dtensor/debug/comm-debug-mode.test.ts',
    'CommDebugMode names the function that the program called before the op inside it that communicates',
    AOT,
  ),
  listed(
    NAMES,
    'dtensor/debug/comm-debug-mode.test.ts',
    'CommDebugMode records the module path in forward and in backward',
  ),
];
