/**
 * Calls compiled functions, which stay reachable, and drops the arguments and results. Prints how
 * many of these the functions kept alive.
 */
import { setImmediate as turn } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { compile, compiler, nn, ones, type Tensor } from '../../../lib/index.js';

setFlagsFromString('--expose-gc');
const gc = runInNewContext('gc') as () => void;
const refs: WeakRef<object>[] = [];
const layer = new nn.Linear(4, 4);
const functions = [
  compile((t: Tensor) => layer(t).relu(), { fullgraph: true }),
  compile((t: Tensor) => t.mul(t.sum().item<number>())),
  compile((t: Tensor) => layer(t).relu(), { fullgraph: true, backend: 'aot_eager' }),
];

function call(fn: (t: Tensor, options?: object) => Tensor, rows: number): void {
  const options = { list: [ones([rows])] };
  const x = ones([rows, 4]);
  refs.push(new WeakRef(x), new WeakRef(options), new WeakRef(fn(x, options)));
}

for (const fn of functions) for (const rows of [1, 2, 2]) call(fn as never, rows);
compiler.explain(functions[0] as (t: Tensor) => Tensor)(ones([3, 4]));
for (let i = 0; i < 4; i++) {
  gc();
  await turn();
}
const kept = refs.flatMap((ref, i) => (ref.deref() === undefined ? [] : [i]));
console.log(JSON.stringify({ kept, functions: functions.length }));
