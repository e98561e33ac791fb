/**
 * Work of two streams that pass tensors on, on one GPU: layers whose weights a second stream makes
 * one layer ahead, and the memory of weights that are freed after their use while the host is ahead.
 *
 *   npm run bench:streams
 */
import { cuda, device, empty, memory, noGrad, ones, scope, type Tensor } from '../lib/index.js';
import { median } from './figures.js';
import { requireGpu, runProgram } from './program.js';

const LAYERS = 48;
const ROUNDS = 9;
/** Kernels of each stream in a layer. Each uses one multiprocessor for long: the host is ahead. */
const KERNELS = 10;
const ROW = 2 ** 21;
const MIB = 2 ** 20;

function chain(x: Tensor): void {
  for (let i = 0; i < KERNELS; i++) x.softmax(-1).dispose();
}

/** Submits all layers: `prepare` of each layer comes before `compute` of the layer before it. */
function oneLayerAhead(
  prepare: (layer: number) => Tensor,
  compute: (weight: Tensor) => void,
): void {
  let ahead = prepare(0);
  for (let layer = 0; layer < LAYERS; layer++) {
    const weight = ahead;
    if (layer + 1 < LAYERS) ahead = prepare(layer + 1);
    compute(weight);
  }
}

async function timeOfLayer(work: () => void): Promise<number> {
  const times: number[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    const begin = new cuda.Event({ enableTiming: true });
    const end = new cuda.Event({ enableTiming: true });
    begin.record();
    noGrad(() => scope(work));
    end.record();
    await cuda.synchronize();
    times.push(begin.elapsedTime(end) / LAYERS);
  }
  return median(times.slice(2));
}

async function handOver(): Promise<void> {
  const side = new cuda.Stream();
  const x = ones([1, ROW], { device: 'cuda' });
  const unshared = ones([1, ROW], { device: 'cuda' });
  // Memory for gathered weights, as fullyShard has it: it comes and goes on the stream that fills it.
  const buffers = [0, 1].map(() => ones([1, ROW], { device: 'cuda' }));
  const bytes = 4 * ROW;
  const prepare = (layer: number): Tensor =>
    cuda.stream(side, () => {
      const weight = buffers[layer % 2] as Tensor;
      weight.untypedStorage().resize_(0).resize_(bytes);
      weight.fill_(1);
      chain(weight);
      return weight;
    });
  const apart = await timeOfLayer(() =>
    oneLayerAhead(prepare, () => {
      x.add_(unshared);
      chain(x);
    }),
  );
  const passedOn = await timeOfLayer(() =>
    oneLayerAhead(prepare, (weight) => {
      x.add_(weight);
      chain(x);
    }),
  );
  const alone = await timeOfLayer(() => {
    for (let layer = 0; layer < LAYERS; layer++) chain(x);
  });
  console.log(
    JSON.stringify({
      name: 'one layer ahead on two streams',
      chainMs: +alone.toFixed(3),
      nothingSharedMs: +apart.toFixed(3),
      passedOnMs: +passedOn.toFixed(3),
      ratio: +(passedOn / apart).toFixed(3),
    }),
  );
}

/** Fills weights of 64 MiB on a second stream, uses them and frees them, without waiting. */
async function heldMemory(freedOn: 'compute' | 'side'): Promise<void> {
  const side = new cuda.Stream();
  const gpu = device('cuda');
  const sums = empty([LAYERS], { device: 'cuda' });
  memory.emptyCache(gpu);
  const before = memory.stats(gpu).reservedBytes;
  memory.resetPeak(gpu);
  noGrad(() =>
    scope(() => {
      const bytes = 64 * MIB;
      for (let layer = 0; layer < LAYERS; layer++) {
        const weight = empty([16 * MIB], { device: 'cuda' });
        weight.untypedStorage().resize_(0);
        if (freedOn === 'compute') weight.untypedStorage().resize_(bytes);
        cuda.stream(side, () => {
          if (freedOn === 'side') weight.untypedStorage().resize_(bytes);
          weight.fill_(layer);
        });
        for (let use = 0; use < 20; use++) sums.select(0, layer).copy_(weight.sum());
        const free = (): void => void weight.untypedStorage().resize_(0);
        if (freedOn === 'compute') free();
        else cuda.stream(side, free);
      }
    }),
  );
  const held = memory.stats(gpu).peakReservedBytes - before;
  await cuda.synchronize();
  console.log(
    JSON.stringify({
      name: `48 weights of 64 MiB, freed on the ${freedOn} stream`,
      heldGiB: +(held / 2 ** 30).toFixed(3),
    }),
  );
}

await runProgram(async () => {
  requireGpu();
  await handOver();
  await heldMemory('compute');
  await heldMemory('side');
});
