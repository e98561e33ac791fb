/**
 * Every pair of features of training programs, with every way to divide a model, uncompiled and
 * compiled, has the parameters of one device.
 */
import assert from 'node:assert/strict';
import { launch } from '../../../lib/distributed.js';
import type { Tensor } from '../../../lib/index.js';
import { takesAll } from '../../takes-all.js';
import { FEATURES, type Feature } from './model.js';
import { trainAlone, trainDivided, WAYS } from './program.js';

/** Variants of others, which are tried beside what several passes of one model change. */
const VARIANTS: readonly Feature[] = ['checkpoints in checkpoints', 'a layer used twice'];
const BESIDE: readonly Feature[] = [...VARIANTS, 'several passes', 'accumulation', 'hooks'];

const arePaired = (one: Feature, other: Feature): boolean =>
  !VARIANTS.includes(one) || BESIDE.includes(other);

const PAIRS: readonly (readonly Feature[])[] = FEATURES.flatMap((one, i) => [
  [one],
  ...FEATURES.slice(i + 1)
    .filter((other) => arePaired(one, other) && arePaired(other, one))
    .map((other) => [one, other]),
]);

const known = new Map<string, Map<string, number[]>>();

/** The parameters of one device; two dtypes round differently, and others hardly. */
async function expectedOf(features: readonly Feature[]): Promise<Map<string, number[]>> {
  const key = features.join();
  let expected = known.get(key);
  if (expected === undefined) {
    expected = await valuesOf(trainAlone(new Set(features)));
    known.set(key, expected);
  }
  return expected;
}

async function valuesOf(state: Map<string, Tensor>): Promise<Map<string, number[]>> {
  const values = new Map<string, number[]>();
  for (const [name, t] of state)
    values.set(name, [...(await t.double().flatten().read<Float64Array>())]);
  return values;
}

/** Of a pair and a way, `npm test` takes the compiled case or the other one, in turn. */
const isTaken = (pair: number, way: number, isCompiled: boolean): boolean =>
  takesAll || ((pair + way) % 2 === 0) === isCompiled;

describe('pairs of features', () => {
  for (const [w, [way, divided]] of Object.entries(WAYS).entries())
    for (const isCompiled of [false, true])
      for (const features of PAIRS.filter((_, pair) => isTaken(pair, w, isCompiled)))
        it(`train as on one device: ${way}${isCompiled ? ', compiled' : ''}, ${features.join(' and ')}`, async () => {
          const expected = await expectedOf(features);
          const tolerance = features.includes('two dtypes') ? 1e-5 : 1e-10;
          await launch(divided.ranks, async (rank) => {
            const state = trainDivided(divided, new Set(features), rank, isCompiled);
            const values = await valuesOf(state);
            assert.deepEqual([...values.keys()].sort(), [...expected.keys()].sort());
            for (const [name, actual] of values)
              actual.forEach((value, i) => {
                const difference = Math.abs(value - (expected.get(name)?.[i] as number));
                assert.ok(
                  difference <= tolerance,
                  `rank ${rank}, ${name}[${i}] differs by ${difference}`,
                );
              });
          });
        });
});
