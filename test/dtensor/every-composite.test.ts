/**
 * For each composite function: with operands in any placements, values and gradients are those of
 * one device.
 */
import { float64, Tensor } from '../../lib/index.js';
import { allComposites, type Composite } from '../../lib/ops/composite.js';
import { reusedRanks } from '../distributed/support/reused-ranks.js';
import { checkSharded, forSamples, runs } from './check-sharded.js';

const WORLD = 4;

/** All tensors of a value, whatever holds them. */
function tensorsOf(value: unknown): Tensor[] {
  if (value instanceof Tensor) return [value];
  return typeof value === 'object' && value !== null ? Object.values(value).flatMap(tensorsOf) : [];
}

/** The same arguments with other tensors, in order. */
function withTensors(args: unknown, tensors: Iterator<Tensor>): unknown {
  if (args instanceof Tensor) return tensors.next().value;
  if (Array.isArray(args)) return args.map((arg) => withTensors(arg, tensors));
  if (args === null || Object.getPrototypeOf(args) !== Object.prototype) return args;
  return Object.fromEntries(
    Object.entries(args as object).map(([name, value]) => [name, withTensors(value, tensors)]),
  );
}

async function checkComposite({ name, fn, samples }: Composite): Promise<void> {
  const calls = samples().filter((args) => tensorsOf(args).length > 0);
  await forSamples(name, calls, (args, mesh, rng, what) => {
    const inputs = tensorsOf(args).map((t) =>
      t.dtype.isFloatingPoint ? t.detach().to(float64) : t,
    );
    return checkSharded(
      {
        run: (tensors) => tensorsOf(fn(...(withTensors(args, tensors.values()) as unknown[]))),
        inputs,
      },
      mesh,
      rng,
      what,
    );
  });
}

describe('every composite function on distributed tensors', function () {
  this.timeout(60_000 * runs);
  const ranks = reusedRanks(WORLD);

  for (const composite of allComposites()) {
    if (composite.readsValues) continue;
    it(`has the values and gradients of one device: ${composite.name}`, async () =>
      void (await ranks.run(() => checkComposite(composite))));
  }
});
