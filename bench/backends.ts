/**
 * Calls that the backends of `compile` run, in turns, and the first calls, which compile: the
 * default backend must not lose where it has nothing to win. usage: backends.ts [cpu|cuda]
 */
import { Gpt } from '../examples/gpt/model.js';
import {
  compile,
  cuda,
  manualSeed,
  nn,
  noGrad,
  ones,
  randint,
  scope,
  type Tensor,
} from '../lib/index.js';
import { median } from './figures.js';
import { device, print } from './measure.js';

const BACKENDS = [null, 'aot_eager', 'inductor'] as const;
type Backend = (typeof BACKENDS)[number];
const ROUNDS = 31;

/** What `make` makes for a backend is called in bursts; null: uncompiled. */
type Make = (backend: Backend) => () => unknown;

const compiled = <A extends readonly unknown[], R>(
  fn: (...args: A) => R,
  backend: Backend,
): ((...args: A) => R) => (backend === null ? fn : compile(fn, { backend, fullgraph: true }));

function timed(work: () => unknown, calls: number): number {
  const start = performance.now();
  for (let i = 0; i < calls; i++) scope(() => void work());
  if (device !== 'cpu') cuda.synchronize();
  return (performance.now() - start) / calls;
}

/** Medians of calls of functions that stay. */
function calls(what: string, burst: number, warmUp: number, make: Make): void {
  const works = BACKENDS.map(make);
  for (const work of works) timed(work, warmUp);
  const times = works.map((): number[] => []);
  for (let round = 0; round < ROUNDS; round++)
    works.forEach((work, i) => void times[i]?.push(timed(work, burst)));
  report(what, 'us', times, burst);
}

/** Medians of calls of functions that are new each time. */
function firstCalls(what: string, rounds: number, make: Make): void {
  const times = BACKENDS.map((): number[] => []);
  for (let round = 0; round < rounds; round++)
    BACKENDS.forEach((backend, i) => {
      const ms = timed(make(backend), 1);
      if (round >= rounds / 3) times[i]?.push(ms);
    });
  report(what, 'ms', times, 1);
}

function report(what: string, unit: 'us' | 'ms', times: number[][], burst: number): void {
  for (const [i, backend] of BACKENDS.entries()) {
    const ms = median(times[i] as number[]);
    const name = `${what}, ${backend ?? 'uncompiled'}`;
    print({ name, unit, value: unit === 'ms' ? ms : ms * 1e3, burst });
  }
}

const x = ones([8], { device });
const gated = (t: Tensor): Tensor => t.silu().mul(t).add(1);

const layers = Array.from({ length: 24 }, () => new nn.Linear(8, 8).to(device));
const linears = new nn.Sequential(...layers);
const forward = (t: Tensor): Tensor => linears(t) as Tensor;

function trained(fn: (t: Tensor) => Tensor, parameters: Iterable<Tensor>, t: Tensor): () => void {
  const all = [...parameters];
  return () => {
    const loss = fn(t);
    loss.backward();
    for (const p of all) p.grad = null;
    loss.item(); // the work is done, not only begun
  };
}

manualSeed(1);
const sizes = { vocabSize: 96, contextLength: 32, numLayers: 2, numHeads: 2, dModel: 32 };
const gpt = new Gpt(sizes).to(device);
const tokens = randint(0, 96, [2, 32], { device });
const loss = (t: Tensor): Tensor => gpt(t).flatten(0, 1).crossEntropy(t.flatten());

const inputs = [4, 8, 12, 16].map((rows) => ones([rows, 8], { device }));
let turn = 0;

calls('one op', 2000, 20_000, (backend) => {
  const fn = compiled((t: Tensor) => t.add(1), backend);
  return () => noGrad(() => fn(x));
});
calls('three pointwise ops', 2000, 20_000, (backend) => {
  const fn = compiled(gated, backend);
  return () => noGrad(() => fn(x));
});
calls('24 linear layers 8x8', 200, 4000, (backend) => {
  const fn = compiled(forward, backend);
  return () => noGrad(() => fn(inputs[0] as Tensor));
});
calls('24 linear layers 8x8 and backward', 100, 1000, (backend) =>
  trained(
    compiled((t: Tensor) => forward(t).sum(), backend),
    linears.parameters(),
    inputs[0] as Tensor,
  ),
);
calls('a GPT of two blocks and backward', 10, 100, (backend) =>
  trained(compiled(loss, backend), gpt.parameters(), tokens),
);
calls('four sizes in turn', 200, 4000, (backend) => {
  const fn = compiled(forward, backend);
  return () => noGrad(() => fn(inputs[turn++ % 4] as Tensor));
});
calls('four numbers in turn', 2000, 20_000, (backend) => {
  const fn = compiled((t: Tensor, k: number) => t.mul(k).add(k), backend);
  return () => noGrad(() => fn(x, turn++ % 4));
});
calls('100 small functions in turn', 2000, 20_000, (backend) => {
  const all = Array.from({ length: 100 }, () => compiled((t: Tensor) => gated(t), backend));
  return () => noGrad(() => (all[turn++ % 100] as typeof gated)(x));
});

firstCalls('first call of three pointwise ops', 120, (backend) => {
  const fn = compiled((t: Tensor) => gated(t), backend);
  return () => noGrad(() => fn(x));
});
firstCalls('first call of 24 linear layers and backward', 45, (backend) =>
  trained(
    compiled((t: Tensor) => forward(t).sum(), backend),
    linears.parameters(),
    inputs[0] as Tensor,
  ),
);
firstCalls('first call of a GPT and backward', 15, (backend) =>
  trained(
    compiled((t: Tensor) => loss(t), backend),
    gpt.parameters(),
    tokens,
  ),
);
const grown = new Map(
  BACKENDS.map((backend) => {
    const fn = compiled((t: Tensor) => forward(t), backend);
    return [backend, (rows: number) => noGrad(() => fn(ones([rows, 8], { device })))];
  }),
);
let rows = 2;
firstCalls('a new size of 24 linear layers', 60, (backend) => {
  const at = backend === null ? ++rows : rows;
  return () => grown.get(backend)?.(at);
});
