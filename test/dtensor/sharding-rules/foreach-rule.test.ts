/**
 * Foreach ops with different placements in one call: the local results form the result on whole
 * tensors.
 */
import assert from 'node:assert/strict';
import { dispatch } from '../../../lib/core/dispatch.js';
import type { AnyOp } from '../../../lib/core/op.js';
import { opByName } from '../../../lib/core/op.js';
import { Partial, type Placement, Replicate, Shard } from '../../../lib/core/placement.js';
import { wrapNumber } from '../../../lib/core/tensor.js';
import type { Tensor } from '../../../lib/index.js';
import { sampleTensor } from '../../../lib/ops/samples.js';
import { assertSame, collect, distribute } from './check-strategies.js';

const shapes = [[5, 3], [4, 2], [3], [2, 3, 2], []];
const cut: Placement[] = [Shard(0), Shard(1), Replicate(), Shard(2), Replicate()];

const list = (seed: number): Tensor[] =>
  shapes.map((shape, i) => sampleTensor(shape, { seed: seed + i, low: 0.1 }));
const absent = (): Tensor[] => list(0).map((t) => wrapNumber(0, t.dtype, t.device));

const sgd = {
  count: 5,
  lr: 0.1,
  momentum: 0.9,
  dampening: 0.1,
  weightDecay: 0.01,
  nesterov: 0,
  maximize: 0,
  firstStep: 0,
};
const adam = {
  count: 5,
  lr: 0.1,
  beta1: 0.9,
  beta2: 0.99,
  eps: 1e-8,
  weightDecay: 0.01,
  decoupled: 1,
  amsgrad: 0,
  maximize: 0,
  biasCorrection1: 0.1,
  biasCorrection2: 0.1,
  gradScale: 1,
};

const { firstStep: _firstStep, ...capturableSgd } = sgd;
const { biasCorrection1: _first, biasCorrection2: _second, ...capturableAdam } = adam;
const rate = (): Tensor => sampleTensor([], { low: 0.1 });
const found = (): Tensor => rate().zerosLike();
const steps = (): Tensor[] => list(0).map((t) => t.newOnes([]));

interface Call {
  name: string;
  lists: () => Tensor[][];
  params: object;
  /** The placements of the leaders; of the first list unless given, others are replicated. */
  placements?: Placement[];
}
const calls: Call[] = [
  { name: 'sgdStep', lists: () => [list(1), list(11), list(21)], params: sgd },
  { name: 'sgdStep', lists: () => [list(1), list(11), absent()], params: { ...sgd, momentum: 0 } },
  {
    name: 'adamStep',
    lists: () => [list(1), list(11), list(21), list(31), absent()],
    params: adam,
  },
  {
    name: 'adamStep',
    lists: () => [list(1), list(11), list(21), list(31), list(41)],
    params: { ...adam, amsgrad: 1 },
  },
  {
    name: 'sgdStepCapturable',
    lists: () => [[rate()], [found()], list(1), list(11), list(21), steps()],
    params: capturableSgd,
    placements: [Replicate(), Replicate(), ...cut],
  },
  {
    name: 'adamStepCapturable',
    lists: () => [[rate()], [found()], list(1), list(11), list(21), list(31), absent(), steps()],
    params: capturableAdam,
    placements: [Replicate(), Replicate(), ...cut],
  },
  { name: 'foreachAddScalar', lists: () => [list(1)], params: { count: 5, scalar: 0.5 } },
  { name: 'foreachAdd', lists: () => [list(1), list(11)], params: { count: 5, alpha: 0.5 } },
  { name: 'foreachMul', lists: () => [list(1)], params: { count: 5, scalar: 0.5 } },
];

/** Runs the op on what each rank holds; `placements` are those of the leaders. */
function checkLists(
  op: AnyOp,
  inputs: () => Tensor[],
  params: object,
  placements: readonly Placement[],
  ranks: number,
): void {
  const whole = inputs();
  const leaders = op.sharding?.follows?.leaders(whole, params) as readonly number[];
  const held = whole.map((t, i) =>
    distribute(t, placements[leaders[i] as number] ?? Replicate(), ranks, i).map((piece) =>
      t.storage === null ? piece : piece.clone(),
    ),
  );
  for (let rank = 0; rank < ranks; rank++) {
    dispatch(
      op,
      held.map((pieces) => pieces[rank] as Tensor),
      params,
    );
  }
  dispatch(op, whole, params);
  whole.forEach((t, i) => {
    if (t.storage === null) return;
    const what = `${op.name}, input ${i}, on ${ranks} ranks`;
    assertSame(
      collect(held[i] as Tensor[], placements[leaders[i] as number] ?? Replicate(), what),
      t,
      what,
    );
  });
}

describe('the sharding rule of a foreach op', () => {
  for (const { name, lists, params, placements: ofLeaders = cut } of calls) {
    const op = opByName(name) as AnyOp;
    it(`lets each tensor follow its leader: ${name}, ${lists().length} lists`, () => {
      for (const ranks of [1, 2, 3, 4])
        checkLists(op, () => lists().flat(), params, ofLeaders, ranks);
    });

    it(`lists the reductions of Partial that it keeps: ${name}, ${lists().length} lists`, () => {
      for (const reduction of op.sharding?.follows?.reductions ?? []) {
        const placements = cut.map(() => Partial(reduction));
        checkLists(op, () => lists().flat(), params, placements, 3);
      }
    });
  }

  it('lets numbers lead themselves', () => {
    const inputs = [...list(1), ...list(11), ...absent()];
    assert.deepEqual(
      opByName('sgdStep')?.sharding?.follows?.leaders(inputs, sgd),
      [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 10, 11, 12, 13, 14],
    );
  });
});
