/**
 * Training steps whose memory runs out: `failing-allocations-body <kind>` leaves a step room for 0,
 * 16, 32 … KiB until it passes. After each, live bytes and the loss must be those of before. Prints
 * how many steps failed, or ends with what is wrong. Needs SHARDWISE_CPU_MEMORY_LIMIT.
 */
import assert from 'node:assert/strict';
import { setImmediate as turn } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import {
  DistributedDataParallel,
  FullyShardedDataParallel,
  fullyShard,
  launch,
} from '../../lib/distributed.js';
import {
  compile,
  manualSeed,
  memory,
  nn,
  OutOfMemoryError,
  optim,
  rand,
  type Tensor,
  zeros,
} from '../../lib/index.js';
import type { StepKind } from './failing-allocations.js';

setFlagsFromString('--expose-gc');
const gc = runInNewContext('gc') as () => void;
const kind = process.argv[2] as StepKind;

const ROOM_BYTES = 16 * 1024;
const WIDTH = 64;
const ROWS = 128;
/** A first step compiles, and makes the state of the optimizer. */
const WARM_STEPS = 2;

type Forward = (x: Tensor) => Tensor;

function wrapped(model: nn.Sequential): Forward {
  switch (kind) {
    case 'eager':
      return model as unknown as Forward;
    case 'aot_eager':
    case 'inductor':
      return compile((x: Tensor) => model(x) as Tensor, { backend: kind });
    case 'fullyShard':
      for (const layer of model) if (layer instanceof nn.Linear) fullyShard(layer);
      return fullyShard(model) as unknown as Forward;
    case 'ddp':
      return new DistributedDataParallel(model) as unknown as Forward;
    case 'flat':
      return new FullyShardedDataParallel(model) as unknown as Forward;
  }
}

/** Takes all memory, in blocks of the size of a step of room. */
function fill(): Tensor[] {
  const filler: Tensor[] = [];
  try {
    for (;;) filler.push(zeros([ROOM_BYTES / 4]));
  } catch (error) {
    if (error instanceof OutOfMemoryError) return filler;
    throw error;
  }
}

/** Keeps nothing of an error, which may hold tensors. */
const nameOf = (error: unknown): string =>
  error instanceof OutOfMemoryError ? error.constructor.name : String(error);

async function probe(): Promise<number> {
  manualSeed(1);
  const model = new nn.Sequential(
    new nn.Linear(WIDTH, 2 * WIDTH),
    new nn.GELU(),
    new nn.Linear(2 * WIDTH, WIDTH),
  );
  const x = rand([ROWS, WIDTH]);
  const forward = wrapped(model);
  // Without a learning rate all steps have one loss.
  const optimizer = new optim.SGD(model.parameters(), { lr: 0, momentum: 0.9 });
  const step = async (): Promise<number> => {
    const loss = forward(x).square().mean();
    loss.backward();
    optimizer.step();
    return (await loss.itemAsync()) as number;
  };
  /** Bytes that live between steps. What an error lists lives until the end of the turn. */
  const settle = async (): Promise<number> => {
    await turn();
    optimizer.zeroGrad();
    for (let i = 0; i < 4; i++) gc();
    memory.collect();
    memory.emptyCache();
    return memory.stats().allocatedBytes;
  };
  let loss = 0;
  for (let i = 0; i < WARM_STEPS; i++) loss = await step();
  const live = await settle();
  for (let room = 0; ; room++) {
    const what = `${kind} with room for ${(room * ROOM_BYTES) >> 10} KiB`;
    const filler = fill();
    for (const t of filler.splice(filler.length - room)) t.dispose();
    const outcome = await step().catch(nameOf);
    for (const t of filler) t.dispose();
    const isFailed = typeof outcome !== 'number';
    if (isFailed) assert.equal(outcome, OutOfMemoryError.name, what);
    else assert.equal(outcome, loss, `${what}: the loss`);
    assert.equal(await settle(), live, `${what}: live bytes`);
    assert.equal(await step(), loss, `${what}: the loss of the next step`);
    assert.equal(await settle(), live, `${what}: live bytes after the next step`);
    if (!isFailed) return room;
  }
}

const isDistributed = ['fullyShard', 'ddp', 'flat'].includes(kind);
let failures = 0;
const count = async (): Promise<void> => {
  failures = await probe();
};
if (isDistributed) await launch(1, count);
else await count();
console.log(failures);
process.exit();
