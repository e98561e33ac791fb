/**
 * Trains under mixed precision and with hooks, with young collections in the midst of steps, then
 * at the ends of steps alone. Prints which part of a step's young objects outlives it then.
 */
import { getHeapSpaceStatistics } from 'node:v8';
import { collector } from '../../../lib/eager/collector.js';
import { amp, autograd, nn, ones, scope, type Tensor } from '../../../lib/index.js';

const [LAYERS, WARM_UP, STEPS] = [300, 20, 10];
const model = new nn.Sequential(
  ...Array.from({ length: LAYERS }, () => new nn.Linear(8, 8, { bias: false })),
);
const input = ones([4, 8]);
const { young, full } = collector();
const kept: Record<string, number> = {};

const youngBytes = (): number =>
  getHeapSpaceStatistics().find(({ space_name }) => space_name === 'new_space')?.space_used_size ??
  0;

function step(inTheMidst: () => void): void {
  const output = amp.autocast({ deviceType: 'cpu', dtype: 'bfloat16' }, () => {
    const result: Tensor = model.forward(input);
    autograd.registerMultiGradHook(
      [result],
      autograd.opaqueHook(() => {}, [result]),
    );
    inTheMidst();
    return result;
  });
  output.sum().backward();
  model.zeroGrad();
}

for (const [name, run] of [
  ['scopes', scope],
  ['plain', (fn: () => void): void => fn()],
] as const) {
  for (let i = 0; i < WARM_UP; i++)
    run(() =>
      step(() => {
        young?.();
        young?.();
      }),
    );
  await input.read();
  full();
  let [before, after] = [0, 0];
  for (let i = 0; i < STEPS; i++) {
    run(() => step(() => {}));
    before += youngBytes();
    young?.();
    after += youngBytes();
    young?.();
  }
  kept[name] = after / before;
}
console.log(JSON.stringify(kept));
