/** Orders of compiled forward and backward passes, and their errors, beside uncompiled ones. */
import assert from 'node:assert/strict';
import {
  CommDebugMode,
  DistributedDataParallel,
  type DistributedDataParallelOptions,
  getRank,
} from '../../../lib/distributed.js';
import {
  ArgumentError,
  type AutogradError,
  compile,
  manualSeed,
  nn,
  noGrad,
  optim,
  randn,
  type Tensor,
} from '../../../lib/index.js';
import { CompileCounterWithBackend, withRanks } from '../../../lib/testing/index.js';
import { BACKENDS } from '../compiled-training.js';
import { Branches, row } from './models.js';

type Backend = (typeof BACKENDS)[number];
type Ddp = DistributedDataParallel<[x: Tensor], Tensor>;
type Forward = (x: Tensor) => Tensor;

class Heads extends nn.Module<[x: Tensor], [Tensor, { out: Tensor }]> {
  base = new nn.Linear(4, 6);
  left = new nn.Linear(6, 3);
  right = new nn.Linear(6, 2);
  forward(x: Tensor): [Tensor, { out: Tensor }] {
    const y = this.base(x).relu();
    return [this.left(y), { out: this.right(y) }];
  }
}

const options = { bucketCapMb: 0.0001 } as const;

function ddpOf(given: DistributedDataParallelOptions = {}): Ddp {
  manualSeed(1);
  const layers = [new nn.Linear(4, 6), new nn.ReLU(), new nn.Linear(6, 3)];
  return new DistributedDataParallel(new nn.Sequential(...layers), { ...options, ...given });
}

/** A compiled call, and how many graphs it has. */
function compiledCall<F>(fn: F, backend: Backend | null) {
  if (backend === null) return { run: fn, counter: null };
  const counter = CompileCounterWithBackend(backend);
  return { run: compile(fn as never, { backend: counter, fullgraph: true }) as F, counter };
}

const loss = (y: Tensor): Tensor => y.square().mean();
const batch = (i: number): Tensor => {
  manualSeed(10 * i + getRank());
  return randn([5, 4]);
};

const gradientsOf = (model: nn.AnyModule): Promise<unknown[]> =>
  Promise.all(
    [...model.parameters()].map(async ({ grad }) => grad && [...(await grad.contiguous().read())]),
  );

/** What passes leave in three steps: gradients and collectives. */
async function seenOf(
  passes: (run: Forward, step: number, ddp: Ddp) => void,
  backend: Backend | null,
  given: DistributedDataParallelOptions,
) {
  const ddp = ddpOf(given);
  const { run, counter } = compiledCall<Forward>(ddp as never, backend);
  const steps: unknown[] = [];
  for (let step = 0; step < 3; step++) {
    const mode = new CommDebugMode();
    mode.run(() => passes(run, step, ddp));
    steps.push([await gradientsOf(ddp), mode.events.map((e) => `${e.phase} ${e.kind} ${e.bytes}`)]);
    noGrad(() => {
      for (const p of ddp.parameters()) p.sub_((p.grad as Tensor).mul(0.1));
    });
    if (step > 0) ddp.zeroGrad(); // the second step adds to the gradients of the first
  }
  return { steps, frames: counter?.frameCount ?? 1 };
}

const ORDERS: Readonly<Record<string, (run: Forward, step: number, ddp: Ddp) => void>> = {
  'one backward pass of three forward passes': (run, step) => {
    const losses = [0, 1, 2].map((i) => loss(run(batch(3 * step + i))));
    losses.reduce((sum, each) => sum.add(each)).backward();
  },
  'three forward passes, then a backward pass of each': (run, step) => {
    const losses = [0, 1, 2].map((i) => loss(run(batch(3 * step + i))));
    for (const each of losses.reverse()) each.backward();
  },
  'a second backward pass of a forward pass': (run, step) => {
    const value = loss(run(batch(step)));
    value.backward({ retainGraph: true });
    value.backward();
  },
  'forward passes that backward never comes to': (run, step) => {
    run(batch(step));
    loss(run(batch(step + 10))).backward();
  },
  'a forward pass in noSync, whose backward comes behind it': (run, step, ddp) => {
    const value = ddp.noSync(() => loss(run(batch(step))));
    value.backward();
    loss(run(batch(step + 10))).backward();
  },
};

for (const backend of BACKENDS)
  describe(`compiled passes of DistributedDataParallel (${backend})`, () => {
    for (const [name, passes] of Object.entries(ORDERS))
      for (const given of [{}, { findUnusedParameters: true }, { gradientAsBucketView: false }])
        it(
          `reduce as uncompiled ones: ${name} ${JSON.stringify(given)}`,
          withRanks(2, async () => {
            const expected = await seenOf(passes, null, given);
            const found = await seenOf(passes, backend, given);
            assert.deepEqual(found.steps, expected.steps);
            assert.ok(found.frames <= 2, `${found.frames} graphs`);
          }),
        );

    it(
      'reduce the gradients of several results, in arrays and objects',
      withRanks(2, async () => {
        const grads = [null, backend].map(async (each) => {
          manualSeed(1);
          const ddp = new DistributedDataParallel(new Heads(), options);
          const { run } = compiledCall<Heads>(ddp as never, each);
          const [left, { out }] = run(batch(0));
          loss(left).add(loss(out)).backward();
          return gradientsOf(ddp);
        });
        assert.deepEqual(await grads[1], await grads[0]);
      }),
    );

    it(
      'take part in join(), where ranks have different numbers of inputs',
      withRanks(2, async (rank) => {
        const trained = async (each: Backend | null): Promise<unknown> => {
          const ddp = ddpOf();
          const optimizer = new optim.SGD(ddp.parameters(), { lr: 0.1 });
          const { run } = compiledCall<Forward>(ddp as never, each);
          await ddp.join(
            () => {
              for (let step = 0; step < 2 + 2 * rank; step++) {
                optimizer.zeroGrad();
                loss(run(batch(step))).backward();
                optimizer.step();
              }
            },
            { divideByInitialWorldSize: false },
          );
          return Promise.all(
            [...ddp.parameters()].map(async (p) => [...(await p.detach().read())]),
          );
        };
        assert.deepEqual(await trained(backend), await trained(null));
      }),
    );

    it(
      'are refused behind a pass that left out parameters, with their names',
      withRanks(2, () => {
        const ddp = new DistributedDataParallel(new Branches());
        const { run } = compiledCall(ddp, backend);
        const unused = (error: Error): boolean =>
          /finished reduction.*module\.branches\.1\.weight|finished reduction.*branches\.1\.weight/s.test(
            (error as AutogradError).message,
          );
        run(row(), 0).sum().backward();
        assert.throws(() => run(row(), 0), unused);
      }),
    );

    it(
      'are refused when a parameter was replaced',
      withRanks(2, () => {
        const ddp = ddpOf();
        const { run } = compiledCall<Forward>(ddp as never, backend);
        loss(run(batch(0))).backward();
        const first = (ddp.module as nn.Sequential).at(0) as nn.Linear;
        first.weight = new nn.Parameter(first.weight.detach().clone());
        assert.throws(() => run(batch(1)), ArgumentError);
      }),
    );
  });
