/** Steps whose runs are recorded, and what holds of every recorded timeline. */
import assert from 'node:assert/strict';
import type { Graph } from '../../../lib/compile/index.js';
import { type DeviceName, randn } from '../../../lib/index.js';
import {
  commFusionWithConcat,
  compile,
  IterGraphModule,
  type IterGraphModuleOptions,
  type StepTransformation,
  scheduleCommWait,
  type Timeline,
  type TimelineEntry,
  timeline,
} from '../../../lib/spmd/index.js';
import { adamOf, type Model, modelOf, trainStep } from './fake-step.js';

const DIM = 16;

export type Passes = (gm: IterGraphModule) => void;

export const none: Passes = () => {};
export const fused: Passes = (gm) => commFusionWithConcat(gm, 1);
export const scheduled: Passes = (gm) => {
  fused(gm);
  scheduleCommWait(gm);
};

/** A step that has been taken once, and its graph. */
export function stepWith(
  passes: Passes,
  options: IterGraphModuleOptions = {},
  device: DeviceName = 'cpu',
): { readonly take: () => void; readonly graph: Graph } {
  let made: IterGraphModule | undefined;
  const gmTransformation: StepTransformation = (module) => {
    made = new IterGraphModule(module, options);
    passes(made);
    made.finalizeSetup();
    return made;
  };
  const model: Model = modelOf(2, DIM).to(device);
  const step = compile({ gmTransformation })(trainStep);
  const [adam, batch] = [adamOf(model), randn([4, DIM], { device })];
  const take = (): void => step(model, adam, batch);
  take();
  return { take, graph: made!.main };
}

const isKernel = ({ lane, start, end }: TimelineEntry): boolean =>
  lane === 'communication' || end > start;

export function checkTimes(seen: Timeline): void {
  const ends = { compute: 0, communication: 0 };
  for (const { name, lane, start, end, waited, called } of seen.entries) {
    assert.ok(start <= end, `${name} starts at ${start} and ends at ${end}`);
    assert.ok(start >= ends[lane], `${name} starts before what is before it in its stream ends`);
    assert.ok(waited >= 0 && waited <= start, `${name} waits ${waited}`);
    assert.ok((called as number) >= 0 && Number.isFinite(end), name);
    ends[lane] = end;
  }
  assert.equal(seen.rates, null);
  assert.equal(seen.total, Math.max(...Object.values(ends)));
  assert.ok(seen.exposed >= 0 && seen.exposed <= seen.communication);
  assert.ok(Math.abs(seen.total - seen.compute - seen.exposed - seen.idle) < 1e-9);
}

/** Every node that a simulated timeline has is there once, and every wait. */
export function checkNodes(seen: Timeline, graph: Graph): void {
  const { entries } = timeline(graph);
  const waits = graph.nodes.filter(({ op }) => op?.name === 'waitTensor').map(({ name }) => name);
  const names = (list: readonly TimelineEntry[]): string[] =>
    list.map(({ name }) => name).filter((name) => !waits.includes(name));
  assert.deepEqual(names(seen.entries), names(entries.filter(isKernel)));
  assert.deepEqual(
    seen.entries.map(({ name }) => name).filter((name) => waits.includes(name)),
    waits,
  );
  for (const { name, flops, bytes } of entries.filter(isKernel)) {
    const same = seen.entries.find((entry) => entry.name === name)!;
    assert.deepEqual([same.flops, same.bytes], [flops, bytes], name);
  }
}
