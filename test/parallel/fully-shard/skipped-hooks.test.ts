/** `compiler.config.skipFsdpHooks`: compiled models whose hooks stay out of graphs. */
import assert from 'node:assert/strict';
import {
  ArgumentError,
  CompileError,
  compile,
  compiler,
  manualSeed,
  noGrad,
  randn,
  type Tensor,
} from '../../../lib/index.js';
import { CompileCounterWithBackend, withRanks } from '../../../lib/testing/index.js';
import { BACKENDS } from '../compiled-training.js';
import { modelOf } from './compiled-training.js';
import { skippingHooks } from './skipping-hooks.js';

type Made = ReturnType<typeof modelOf>;
type Forward = (x: Tensor) => Tensor;

/** The loss and the gradients of a step that changes the parameters, as tensors. */
function step({ model }: Made, run: Forward, at: number): Tensor[] {
  manualSeed(at);
  const loss = run(randn([5, 4]))
    .square()
    .mean();
  loss.backward();
  const grads = [...model.parameters()].map((p) => p.grad as Tensor);
  noGrad(() => {
    for (const p of model.parameters()) p.sub_((p.grad as Tensor).mul(0.05));
  });
  model.zeroGrad();
  return [loss.detach(), ...grads];
}

const valuesOf = (tensors: readonly Tensor[]): Promise<number[][]> =>
  Promise.all(
    tensors.map(async (t) => Array.from(await (t.sharding?.local ?? t).detach().read(), Number)),
  );

/** The calls of graphs that gather, free or reduce. */
const shardedCalls = (counter: ReturnType<typeof CompileCounterWithBackend>): number =>
  counter.graphs
    .flatMap((graph) => graph.callNodes)
    .filter(({ op }) => op?.name.startsWith('fsdp::')).length;

for (const backend of BACKENDS)
  describe(`skipFsdpHooks of sharded models (${backend})`, () => {
    for (const [title, settings] of Object.entries({
      'as it is by default': [false, false, false],
      on: [true, true, true],
      'on after a step': [false, true, true],
      'off after a step': [true, false, false],
      'on and off in turns': [false, true, false, true],
    }))
      it(
        `gives what uncompiled models give, ${title}`,
        withRanks(2, async () => {
          const [eager, made] = [modelOf({}, null), modelOf({}, null)];
          const counter = CompileCounterWithBackend(backend);
          const compiled = compile(made.model, { backend: counter }) as Forward;
          const frames = new Map<boolean, number>();
          for (const [i, skip] of settings.entries()) {
            const expected = await valuesOf(step(eager, eager.uncompiled, i));
            const before = [counter.frameCount, shardedCalls(counter)] as const;
            const found = await valuesOf(skippingHooks(skip, () => step(made, compiled, i)));
            assert.deepEqual(found, expected, `step ${i}`);
            const captured = counter.frameCount - before[0];
            if (frames.has(skip)) assert.equal(captured, 0, `no capture in step ${i}`);
            else frames.set(skip, captured);
            if (skip) assert.equal(shardedCalls(counter), before[1], 'hooks are in no graph');
          }
          if (frames.has(false)) assert.equal(frames.get(false), 1, 'one graph of the whole');
          if (frames.has(true)) assert.ok((frames.get(true) as number) >= 4, 'graphs of modules');
        }),
      );
  });

describe('skipFsdpHooks', () => {
  it(
    'ends a graph that has to be whole, and says why',
    withRanks(2, () => {
      const { model } = modelOf({}, null);
      const compiled = compile((x: Tensor) => model(x), { fullgraph: true });
      skippingHooks(true, () =>
        assert.throws(
          () => compiled(randn([5, 4])),
          (error: Error) =>
            error instanceof CompileError &&
            /a module that fullyShard shards was called/.test(error.message),
        ),
      );
      assert.deepEqual(compiled(randn([5, 4])).shape, [5, 3]);
    }),
  );

  it('is named where it is what a recapture is for', () => {
    const explained = compiler.explain((x: Tensor) => x.sin());
    explained(randn([2]));
    const { recaptures } = skippingHooks(true, () => explained(randn([2])));
    assert.deepEqual(recaptures[0]?.because, ['compiler.config.skipFsdpHooks was off and is on']);
  });

  it('refuses what is no boolean, and stays', () => {
    for (const value of [1, null, 'true'])
      assert.throws(() => {
        compiler.config.skipFsdpHooks = value as never;
      }, ArgumentError);
    assert.equal(compiler.config.skipFsdpHooks, false);
  });
});
