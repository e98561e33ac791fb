/** Guards on what decides the gradient of an op beside its operands. */
import assert from 'node:assert/strict';
import { type BackwardCompiler, compiledAutograd } from '../../../lib/compile/index.js';
import { type DTensor, fullyShard } from '../../../lib/distributed.js';
import {
  CompileError,
  compile,
  compiler,
  library,
  nn,
  ones,
  type Tensor,
} from '../../../lib/index.js';
import { CompileCounterWithBackend, withRanks } from '../../../lib/testing/index.js';

interface Settings {
  factor: number;
  names: readonly string[];
}

/** A copy, whose gradient is multiplied by what the settings say in backward. */
const scaled = library
  .customOp('opState::scaled', { keepsNoTensors: true }, (x: Tensor, _settings: Settings) =>
    x.clone(),
  )
  .registerFake((x) => x)
  .registerAutograd({
    state: (_, settings) => settings,
    setupContext: (_, [, settings]) => ({ settings }),
    backward: ({ settings }, grad) => [grad?.mul(settings.factor), null],
  });

const gradientOf = (fn: (x: Tensor) => Tensor): unknown => {
  const x = ones([1], { requiresGrad: true });
  fn(x).sum().backward();
  return x.grad?.tolist();
};

for (const backend of ['eager', 'aot_eager', 'aot_eager_decomp_partition', 'inductor'] as const)
  describe(`a compiled function that calls an op with a state, backend ${backend}`, () => {
    it('is captured anew when the state is another one, and serves equal ones', () => {
      const settings: Settings = { factor: 2, names: ['a'] };
      const counter = CompileCounterWithBackend(backend);
      const compiled = compile((x: Tensor) => scaled(x, settings).mul(3), {
        backend: counter,
        fullgraph: true,
      });
      const frames: number[] = [];
      for (const factor of [2, 5, 2, 5]) {
        Object.assign(settings, { factor, names: ['a'] });
        assert.deepEqual(gradientOf(compiled), [3 * factor]);
        frames.push(counter.frameCount);
      }
      settings.names = ['a', 'b'];
      assert.deepEqual(gradientOf(compiled), [15]);
      assert.deepEqual([...frames, counter.frameCount], [1, 2, 2, 2, 3]);
    });

    it('is captured anew in backward passes, too', () => {
      const settings: Settings = { factor: 2, names: [] };
      const counter = CompileCounterWithBackend(backend);
      const compiler: BackwardCompiler = (graph) => compile(graph, { backend: counter });
      for (const factor of [2, 5, 2]) {
        settings.factor = factor;
        const x = ones([1], { requiresGrad: true });
        const loss = scaled(x, settings).sum();
        compiledAutograd.enable(compiler, () => loss.backward());
        assert.deepEqual(x.grad?.tolist(), [factor]);
      }
      assert.equal(counter.frameCount, 2);
    });

    it(
      'is captured anew when a sharded model reduces gradients in other passes',
      withRanks(2, async () => {
        const model = fullyShard(new nn.Linear(2, 2));
        const counter = CompileCounterWithBackend(backend);
        const compiled = compile(model, { backend: counter, fullgraph: true });
        const seen: unknown[] = [];
        for (const sync of [true, false, false, true, true]) {
          model.setRequiresGradientSync(sync);
          compiled(ones([3, 2]))
            .sum()
            .backward();
          const grad = model.weight.grad as DTensor | null;
          const values = grad && Array.from(await grad.toLocal().read(), Number);
          seen.push([counter.frameCount, values]);
          model.zeroGrad();
        }
        const [once, all] = [
          [3, 3],
          [9, 9],
        ];
        // A pass alone, one that only accumulates, and one that takes along what has accumulated.
        assert.deepEqual(seen, [
          [1, once],
          [2, null],
          [2, null],
          [3, all],
          [3, once],
        ]);
      }),
    );
  });

describe('the state of an op', () => {
  it('stands among the guards, and its first change in the words of a recapture', () => {
    const settings: Settings = { factor: 2, names: ['a', 'b'] };
    const explained = compiler.explain((x: Tensor) => scaled(x, settings));
    const call = () => explained(ones([1], { requiresGrad: true }));
    const state = 'the state of opState::scaled';
    const { guards } = call().graphs[0] as { guards: readonly string[] };
    assert.deepEqual(
      guards.filter((guard) => guard.startsWith(state)),
      [`${state}.factor is 2`, `${state}.names is ['a', 'b']`],
    );
    settings.factor = 4;
    assert.deepEqual(call().recaptures.at(-1)?.because, [`${state}.factor was 2 and is 4`]);
    Object.assign(settings, { factor: 2, names: ['a', 'c'] });
    assert.deepEqual(call().recaptures.at(-1)?.because, [
      `${state}.names.1 was 'b' and is 'c'`,
      `${state}.factor was 4 and is 2`,
    ]);
  });

  it(
    'names the module whose gradients are reduced in other passes',
    withRanks(2, () => {
      const linear = new nn.Linear(2, 2);
      const layer = fullyShard(linear);
      const model = fullyShard(new nn.Sequential(linear, new nn.ReLU()));
      const explained = compiler.explain(model);
      const state = 'the state of fsdp::unshard of module 0';
      const { guards } = explained(ones([3, 2])).graphs[0] as { guards: readonly string[] };
      assert.ok(guards.includes(`${state}.reducesGradients is true`), guards.join('\n'));
      layer.setRequiresGradientSync(false);
      assert.deepEqual(explained(ones([3, 2])).recaptures.at(-1)?.because, [
        `${state}.reducesGradients was true and is false`,
      ]);
    }),
  );

  it(
    'is what an error names where no further capture is allowed',
    withRanks(2, () => {
      const model = fullyShard(new nn.Linear(2, 2));
      const compiled = compile(model, { fullgraph: true });
      compiled(ones([3, 2]))
        .sum()
        .backward();
      model.setRequiresGradientSync(false);
      const { recompileLimit } = compiler.config;
      compiler.config.recompileLimit = 1;
      try {
        assert.throws(
          () => compiled(ones([3, 2])),
          (error: Error) =>
            error instanceof CompileError &&
            /reducesGradients was true and is false/.test(error.message),
        );
      } finally {
        compiler.config.recompileLimit = recompileLimit;
      }
    }),
  );
});
