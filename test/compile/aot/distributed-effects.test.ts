/** Effects on distributed tensors themselves in lowered graphs. */
import assert from 'node:assert/strict';
import { aotAutograd, compiledAutograd, type GraphModule } from '../../../lib/compile/index.js';
import {
  ColwiseParallel,
  DTensor,
  fullyShard,
  initDeviceMesh,
  parallelizeModule,
  RowwiseParallel,
  Shard,
} from '../../../lib/distributed.js';
import {
  compile,
  manualSeed,
  nn,
  noGrad,
  ones,
  optim,
  rand,
  type Tensor,
} from '../../../lib/index.js';
import { onRanks, valuesOf } from '../../distributed/support/on-ranks.js';

type Model = nn.Module<[Tensor]>;

/** A compiler of backward passes by AOT autograd, which counts the graphs of both levels. */
function counting(): {
  backend: ReturnType<typeof aotAutograd>;
  compiler: Parameters<typeof compiledAutograd.enable>[0];
  passes: string[];
  lowered: string[];
} {
  const [passes, lowered]: string[][] = [[], []] as [string[], string[]];
  const backend = aotAutograd({
    fwCompiler: (module) => {
      lowered.push(module.code);
      return compile(module, { backend: 'aot_eager' }) as never;
    },
  });
  const compiler = (module: GraphModule) => {
    passes.push(module.code);
    return compile(module, { backend });
  };
  return { backend, compiler, passes, lowered };
}

/** Losses, and the local gradients and values of all parameters, over three steps. */
async function steps(
  model: Model,
  around: (fn: () => void) => void,
  after: () => Promise<void> = async () => {},
): Promise<unknown[]> {
  const optimizer = new optim.SGD(model.parameters(), { lr: 0.1 });
  manualSeed(7);
  const seen: unknown[] = [];
  for (let i = 0; i < 3; i++) {
    const x = rand([2, 4]);
    const loss = model(x).sin().sum();
    around(() => loss.backward());
    await after();
    const state: number[][] = [await valuesOf(loss)];
    for (const p of model.parameters()) {
      assert.ok(p instanceof DTensor && p.grad instanceof DTensor);
      assert.deepEqual(p.grad.placements.map(String), p.placements.map(String));
      state.push(await valuesOf(p.grad.toLocal()), await valuesOf(p.detach().toLocal()));
    }
    seen.push(state);
    optimizer.step();
    optimizer.zeroGrad({ setToNone: i % 2 === 0 });
  }
  return seen;
}

const models = {
  'tensor parallel': (): Model => {
    const mesh = initDeviceMesh('cpu', [2]);
    const model = new nn.Sequential(new nn.Linear(4, 8), new nn.ReLU(), new nn.Linear(8, 4));
    parallelizeModule(model, mesh, { '0': ColwiseParallel(), '2': RowwiseParallel() });
    return model as unknown as Model;
  },
  'fully sharded': (): Model => {
    const mesh = initDeviceMesh('cpu', [2]);
    const model = new nn.Sequential(new nn.Linear(4, 8), new nn.ReLU(), new nn.Linear(8, 4));
    fullyShard(model, { mesh });
    return model as unknown as Model;
  },
};

function seeded(name: keyof typeof models): Model {
  manualSeed(1);
  return models[name]();
}

describe('effects on distributed tensors in lowered graphs', () => {
  it('set the gradients of tensor parallel parameters in a captured backward pass', async () => {
    await onRanks(2, async () => {
      const expected = await steps(seeded('tensor parallel'), (fn) => fn());
      const { compiler, passes, lowered } = counting();
      const got = await steps(seeded('tensor parallel'), (fn) =>
        compiledAutograd.enable(compiler, fn),
      );
      assert.deepEqual(got, expected);
      // One without gradients, one that adds to some.
      assert.equal(passes.length, 2, passes.join('\n'));
      assert.equal(lowered.length, 2, passes.join('\n'));
    });
  });

  it('set the gradients of fully sharded parameters, whose hooks a captured pass calls', async () => {
    await onRanks(2, async () => {
      const expected = await steps(seeded('fully sharded'), (fn) => fn());
      const { compiler, passes, lowered } = counting();
      const got = await steps(seeded('fully sharded'), (fn) =>
        compiledAutograd.enable(compiler, fn),
      );
      assert.deepEqual(got, expected);
      assert.equal(passes.length, 2, passes.join('\n'));
      assert.equal(lowered.length, 2, passes.join('\n'));
    });
  });

  for (const name of Object.keys(models) as (keyof typeof models)[])
    it(`read and set the gradients of ${name} parameters in a compiled function`, async () => {
      await onRanks(2, async () => {
        const clip = (model: Model): Tensor => {
          const norms: Tensor[] = [];
          for (const p of model.parameters()) {
            const grad = p.grad as Tensor;
            norms.push(grad.mul(grad).sum());
            p.grad = grad.mul(0.5);
          }
          return norms[0] as Tensor;
        };
        const run = async (f: typeof clip): Promise<unknown[]> => {
          const model = seeded(name);
          const norms: number[][] = [];
          const seen = await steps(
            model,
            (fn) => fn(),
            async () =>
              void norms.push(await valuesOf((noGrad(() => f(model)) as DTensor).toLocal())),
          );
          return [seen, norms];
        };
        const expected = await run(clip);
        const { backend, lowered } = counting();
        assert.deepEqual(await run(compile(clip, { backend, fullgraph: true })), expected);
        assert.ok(lowered.length >= 1 && lowered.every((text) => text.includes('distribute(')));
      });
    });

  for (const backend of ['aot_eager', 'aot_eager_decomp_partition'] as const)
    it(`set gradients and memory of distributed tensors in backward (${backend})`, async () => {
      await onRanks(2, async () => {
        const mesh = initDeviceMesh('cpu', [2]);
        const make = (value: number): DTensor =>
          DTensor.fromLocal(ones([2, 2]).mul(value), mesh, [Shard(0)]);
        // What a hook gets as a gradient, and keeps: of an argument, and of a computed tensor.
        const fn = (x: Tensor, kept: Tensor, moved: Tensor): Tensor => {
          const y = x.mul(3);
          y.registerHook((grad) => {
            kept.grad = grad.detach().mul(y.detach());
            moved.data = grad.detach().mul(5);
          });
          return y.sin();
        };
        const run = async (f: typeof fn): Promise<unknown[]> => {
          const seen: unknown[] = [];
          for (let i = 1; i <= 3; i++) {
            const [x, kept, moved] = [make(i).requiresGrad_(), make(i), make(7)];
            f(x, kept, moved).backward(make(i));
            const grads = [x.grad, kept.grad, moved] as DTensor[];
            assert.ok(grads.every((t) => t instanceof DTensor));
            for (const t of grads) seen.push(t.placements.map(String), await valuesOf(t.toLocal()));
          }
          return seen;
        };
        const expected = await run(fn);
        assert.deepEqual(await run(compile(fn, { backend, fullgraph: true })), expected);
        const { backend: counted, lowered } = counting();
        assert.deepEqual(await run(compile(fn, { backend: counted, fullgraph: true })), expected);
        assert.equal(lowered.length, 2);
        assert.match(lowered[1] as string, /setGrad\(%whole/);
      });
    });

  it('set versions and memory of distributed arguments', async () => {
    await onRanks(2, async () => {
      const mesh = initDeviceMesh('cpu', [2]);
      const make = (): DTensor => DTensor.fromLocal(ones([2, 2]), mesh, [Shard(0)]);
      const fn = (x: Tensor, y: Tensor): Tensor => {
        x.set_(y.mul(3));
        return x.add(1);
      };
      const { backend, lowered } = counting();
      const compiled = compile(fn, { backend, fullgraph: true });
      for (const f of [fn, compiled, compiled]) {
        const [x, y] = [make(), make()];
        const { _version: before } = x;
        const z = f(x, y) as DTensor;
        assert.deepEqual(await valuesOf(z.toLocal()), [4, 4, 4, 4]);
        assert.deepEqual(await valuesOf(x.toLocal()), [3, 3, 3, 3]);
        assert.equal(x._version, before + 1);
      }
      assert.equal(lowered.length, 1);
    });
  });
});
