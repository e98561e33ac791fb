/** Models and batches of the tests of data parallel training. */
import assert from 'node:assert/strict';
import { float64, manualSeed, nn, optim, randn, type Tensor, tensor } from '../../../lib/index.js';

export class Block extends nn.Module {
  up = new nn.Linear(6, 10);
  norm = new nn.LayerNorm(10);
  down = new nn.Linear(10, 6);
  forward(x: Tensor): Tensor {
    return this.down(this.norm(this.up(x)).relu()).add(x);
  }
}

export class Model extends nn.Module {
  first = new Block();
  second = new Block();
  head = new nn.Linear(6, 3);
  forward(x: Tensor): Tensor {
    return this.head(this.second(this.first(x)));
  }
}

export const STEPS = 10;
export const BATCH = 12;
export const batchOf = (step: number): Tensor => {
  manualSeed(step + 1);
  return randn([BATCH, 6], { dtype: float64 });
};
export const shardOf = (x: Tensor, rank: number, ranks: number): Tensor =>
  x.narrow(0, (rank * BATCH) / ranks, BATCH / ranks);
export const valuesOf = (model: nn.AnyModule): Promise<number[][]> =>
  Promise.all(
    [...model.parameters()].map(
      async (p) => [...(await p.detach().reshape([-1]).read())] as number[],
    ),
  );

export function assertSame(actual: readonly number[][], expected: readonly number[][]): void {
  assert.equal(actual.length, expected.length);
  actual.forEach((values, i) => {
    values.forEach((value, k) => {
      const wanted = (expected[i] as number[])[k] as number;
      assert.ok(
        Math.abs(value - wanted) <= 1e-9,
        `parameter ${i}, element ${k}: ${value}, ${wanted}`,
      );
    });
  });
}

export class Branches extends nn.Module<[x: Tensor, branch: number]> {
  branches = new nn.ModuleList([new nn.Linear(2, 2), new nn.Linear(2, 2), new nn.Linear(2, 2)]);
  forward(x: Tensor, branch: number): Tensor {
    return (this.branches.at(branch) as nn.Linear)(x);
  }
}

/** An input for them. */
export const row = (): Tensor => tensor([[1, 1]]);

/** Gives each parameter an optimizer that steps and frees the gradient as soon as it is there. */
export function stepInHooks(model: nn.AnyModule): void {
  for (const p of model.parameters()) {
    const optimizer = new optim.AdamW([p], { lr: 0.01 });
    p.registerPostAccumulateGradHook(() => {
      optimizer.step();
      optimizer.zeroGrad();
    });
  }
}
