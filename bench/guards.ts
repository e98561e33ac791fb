/**
 * Host time of the guards of compiled functions: microseconds a call whose graph is empty. usage:
 * guards.ts
 */
import { compile, nn, ones, type Tensor } from '../lib/index.js';
import { median } from './figures.js';
import { print } from './measure.js';

/** Calls after which the engine has compiled the code. */
const WARM_UP = 20_000;
const BURST = 5_000;
const REPEATS = 15;

function time(fn: () => unknown): number {
  for (let i = 0; i < WARM_UP; i++) fn();
  const times = Array.from({ length: REPEATS }, () => {
    const start = performance.now();
    for (let i = 0; i < BURST; i++) fn();
    return ((performance.now() - start) / BURST) * 1e3;
  });
  return median(times);
}

const x = ones([2, 8]);
const identity = compile((t: Tensor) => t, { fullgraph: true });
print({ name: 'a call without a module', unit: 'us', value: time(() => identity(x)) });

for (const layers of [1, 24]) {
  const model = new nn.Sequential(...Array.from({ length: layers }, () => new nn.Linear(8, 8)));
  // The graph computes nothing: what remains are the guards.
  const compiled = compile(
    (t: Tensor) => {
      model(t);
      return t;
    },
    { fullgraph: true, backend: (() => (t: Tensor) => [t]) as never },
  );
  print({
    name: `guards of ${layers} linear layers`,
    unit: 'us',
    value: time(() => compiled(x)),
  });
}
