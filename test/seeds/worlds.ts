/** Where the ranks of a seed case run: on the CPU, on a GPU that they share, or on all GPUs. */
import { currentRuntime } from '../../lib/core/rank-runtime.js';
import type { RankFunction } from '../../lib/distributed/local-ranks/run.js';
import { type DeviceMesh, initDeviceMesh } from '../../lib/distributed.js';
import { cuda } from '../../lib/index.js';
import { onRanks } from '../distributed/support/on-ranks.js';
import { skipBecause, skipWithoutCuda } from '../skip.js';

/** What a case needs to know of the place of its ranks. */
export interface World {
  readonly title: string;
  readonly device: 'cpu' | 'cuda';
  /** The number of GPUs that it takes. */
  readonly gpus: number;
  /** Runs `fn` on each of `size` ranks of this process. */
  readonly onRanks: <T>(size: number, fn: RankFunction<T>) => Promise<T[]>;
}

export const CPU: World = { title: 'on the CPU', device: 'cpu', gpus: 0, onRanks };

/** The kernels of a GPU are loaded at the first call. */
const ON_GPU = { timeoutMs: 60_000 } as const;

const GPUS: readonly World[] = [
  {
    title: 'on a GPU that ranks share',
    device: 'cuda',
    gpus: 1,
    onRanks: (size, fn) =>
      onRanks(
        size,
        (rank, worldSize) => {
          currentRuntime().findCudaIndex = () => 0;
          return fn(rank, worldSize);
        },
        { ...ON_GPU, deviceBackend: 'shm' },
      ),
  },
  {
    title: 'on all GPUs',
    device: 'cuda',
    gpus: 2,
    onRanks: (size, fn) => onRanks(size, fn, ON_GPU),
  },
];

/** A suite on one GPU, and on all where there are several; without GPUs it is skipped. */
export function describeOnGpus(name: string, suite: (world: World) => void): void {
  for (const world of GPUS)
    describe(`${name}, ${world.title}`, function () {
      this.timeout(300_000);
      before(function () {
        skipWithoutCuda(this);
        if (cuda.deviceCount() < world.gpus) skipBecause(this, 'one GPU, it takes two');
      });
      suite(world);
    });
}

/** Runs `fn` on each of `size` ranks with a mesh of all of them. */
export const onMesh = (
  size: number,
  fn: (mesh: DeviceMesh, rank: number) => Promise<void>,
  world = CPU,
): Promise<void[]> => world.onRanks(size, (rank) => fn(initDeviceMesh(world.device, [size]), rank));
