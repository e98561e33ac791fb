/**
 * Makes compilers of one backward pass, some with backends and results of their own, and hooks with
 * tensors that they close over, and drops them. Prints how many of these objects are left.
 */
import { setImmediate as turn } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import {
  type BackwardCompiler,
  compile,
  compiledAutograd,
  type GraphModule,
} from '../../../lib/compile/index.js';
import { type Tensor, tensor } from '../../../lib/index.js';

setFlagsFromString('--expose-gc');
const gc = runInNewContext('gc') as () => void;
const refs: WeakRef<object>[] = [];

function dropped<T extends object>(value: T): T {
  refs.push(new WeakRef(value));
  return value;
}

const makers: (() => BackwardCompiler)[] = [
  () => (module) => compile(dropped(module), { backend: 'inductor' }),
  () => {
    const backend = dropped((module: GraphModule) => module.forward.bind(dropped(module)));
    return (module) => compile(module, { backend });
  },
  () => (module) => dropped(module.forward.bind(dropped(module))),
];
process.removeAllListeners('warning'); // that so many compilers are made
function pass(step: number): void {
  const x = tensor([1, 2], { requiresGrad: true });
  const compiler = dropped((makers[step % makers.length] as () => BackwardCompiler)());
  const factor = dropped(tensor([2, 3]));
  const hook = dropped((grad: Tensor) => grad.mul(factor));
  compiledAutograd.enable(compiler, () => {
    x.square().sum().backward();
    const y = x.square();
    y.registerHook(hook);
    y.sum().backward();
  });
}
for (let step = 0; step < 30; step++) pass(step);
for (let i = 0; i < 4; i++) {
  gc();
  await turn();
}
const kept = refs.filter((ref) => ref.deref() !== undefined).length;
console.log(JSON.stringify({ kept, made: refs.length }));
