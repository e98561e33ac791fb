/**
 * Compares a function on distributed tensors in random placements, and its gradients, with one
 * device.
 */
import assert from 'node:assert/strict';
import { type DeviceMesh, initDeviceMesh } from '../../lib/distributed.js';
import {
  autograd,
  getRngState,
  manualSeed,
  seed as seedByChance,
  setRngState,
  type Tensor,
} from '../../lib/index.js';
import { isVariable } from '../every-op/differentiable.js';
import { Rng } from '../fuzz/rng.js';
import { assertWhole, drawSpec, placed } from './random-placements.js';

/** On four ranks. */
const meshes = [[4], [2, 2], [2, 1, 2]];
/** Of one function, in one run. */
const MOST_CALLS = 24;
export const runs = Number(process.env['SHARDWISE_TEST_RUNS'] ?? 1);
const seed = Number(process.env['SHARDWISE_TEST_SEED'] ?? Date.now() % 1e6);

/** A call, on whole tensors. */
export interface Call {
  readonly run: (inputs: readonly Tensor[]) => readonly Tensor[];
  readonly inputs: readonly Tensor[];
}

/** Results and the gradients of the inputs, from gradients of the results. */
function runWithGradients(
  call: Call,
  inputs: readonly Tensor[],
  cotangent: (like: Tensor, i: number) => Tensor,
): { outputs: readonly Tensor[]; leaves: Tensor[] } {
  const outputs = call.run(inputs);
  const roots = outputs.filter((t) => t.requiresGrad);
  if (roots.length > 0) autograd.backward(roots, roots.map(cotangent));
  return { outputs, leaves: inputs.filter((t) => t.leafRequiresGrad) };
}

/**
 * Seeds the ranks, or gives each another seed; returns what lets plain tensors draw next what
 * distributed ones do, or these themselves.
 */
function startDrawing(isSeeded: boolean): (sharded: boolean) => void {
  if (isSeeded) return () => void manualSeed(11);
  seedByChance();
  const state = getRngState();
  const { seed, offset } = state.onMeshes as NonNullable<typeof state.onMeshes>;
  return (sharded) => setRngState(sharded ? state : { seed, offset });
}

/** A gradient for a result: numbers that have nothing to do with it. */
function weight(like: Tensor, i: number): Tensor {
  const steps = like.newOnes([like.numel()]).cumsum(0);
  return steps
    .mul(1.7 + i)
    .sin()
    .reshape(like.shape)
    .detach();
}

function leafOf(t: Tensor): Tensor {
  return t.detach().clone().requiresGrad_(isVariable(t));
}

/**
 * @throws AssertionError where a result or a gradient differs. All ranks call it, with an `rng` in
 * the same state
 */
export async function checkSharded(
  call: Call,
  mesh: DeviceMesh,
  rng: Rng,
  what: string,
): Promise<void> {
  const plain = call.inputs.map((t) => (t.storage === null ? t : leafOf(t)));
  const start = startDrawing(rng.chance(0.5));
  start(false);
  const expected = runWithGradients(call, plain, weight);
  const specs = call.inputs.map((t) =>
    t.storage === null || (t.ndim === 0 && rng.chance(0.3)) ? null : drawSpec(rng, mesh, t),
  );
  if (specs.every((spec) => spec === null)) return;
  const text = `${what} of ${specs.map((spec) => spec ?? 'a plain one').join('; ')}`;
  const inputs = call.inputs.map((t, i) => {
    const spec = specs[i];
    return spec ? placed(t, spec, isVariable(t)) : t.storage === null ? t : leafOf(t);
  });
  const whole = expected.outputs.filter((t) => t.requiresGrad);
  const grads = whole.map((t) => drawSpec(rng, mesh, t));
  start(true);
  const actual = runWithGradients(call, inputs, (_, i) =>
    placed(weight(whole[i] as Tensor, i), grads[i] as NonNullable<(typeof grads)[number]>),
  );
  assert.equal(actual.outputs.length, expected.outputs.length, text);
  for (const [i, t] of actual.outputs.entries())
    await assertWhole(t, expected.outputs[i] as Tensor, `output ${i} of ${text}`);
  for (const [i, leaf] of actual.leaves.entries())
    await checkGradient(leaf, expected.leaves[i] as Tensor, `gradient ${i} of ${text}`);
}

async function checkGradient(leaf: Tensor, expected: Tensor, what: string): Promise<void> {
  const [grad, wanted] = [leaf.gradTensor, expected.gradTensor];
  if (grad === null && wanted === null) return;
  assert.ok(grad !== null && wanted !== null, `${what} is ${grad === null ? 'missing' : 'there'}`);
  await assertWhole(grad, wanted, what);
  assert.equal(grad.sharding === null, leaf.sharding === null, what);
  if (leaf.sharding === null) return;
  leaf.placements.forEach((placement, meshDim) => {
    assert.ok(
      placement.isPartial()
        ? grad.placements[meshDim]?.isReplicate()
        : grad.placements[meshDim] === placement,
      `${what} is placed as ${grad._spec}`,
    );
  });
}

/** A number for a name, so that each function has placements of its own. */
function hash(name: string): number {
  return [...name].reduce((h, c) => Math.imul(h ^ c.charCodeAt(0), 16777619), 2166136261);
}

/** Samples and meshes to try: all of them, or as many as there may be, drawn. */
function drawCases(samples: number, rng: Rng): [sample: number, mesh: readonly number[]][] {
  const cases = Array.from({ length: samples }, (_, s) =>
    meshes.map((mesh): [number, readonly number[]] => [s, mesh]),
  ).flat();
  return cases.length <= MOST_CALLS
    ? cases
    : Array.from({ length: MOST_CALLS }, () => rng.pick(cases));
}

/** Runs a check on samples of one function; what it throws says with which seed. */
export async function forSamples<S>(
  name: string,
  samples: readonly S[],
  check: (sample: S, mesh: DeviceMesh, rng: Rng, what: string) => Promise<void>,
): Promise<void> {
  const rng = new Rng(seed, hash(name));
  for (let r = 0; r < runs; r++) {
    for (const [s, shape] of drawCases(samples.length, rng)) {
      const what = `SHARDWISE_TEST_SEED=${seed}: ${name}, sample ${s}, mesh [${shape}]`;
      try {
        await check(samples[s] as S, initDeviceMesh('cpu', shape), rng, what);
      } catch (error) {
        const { message } = error as Error;
        throw message.includes(what) ? error : new Error(`${what}: ${message}`, { cause: error });
      }
    }
  }
}
