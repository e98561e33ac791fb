/** Full backward hooks of modules in compiled functions. */
import assert from 'node:assert/strict';
import { compile, compiler, nn, type Tensor, tensor } from '../../../lib/index.js';

const BACKENDS = ['aot_eager', 'aot_eager_decomp_partition'] as const;

interface Counted extends nn.Linear {
  calls: number;
  total: Tensor;
}

/** Four backward passes of a module: gradients, and what its hooks keep. */
function steps(
  register: (model: Counted) => void,
  backend: (typeof BACKENDS)[number] | null,
): unknown {
  const model = Object.assign(new nn.Linear(2, 2), { calls: 0, total: tensor([0, 0]) }) as Counted;
  model.weight.data.copy_(
    tensor([
      [1, 2],
      [3, 4],
    ]),
  );
  model.bias?.data.zero_();
  register(model);
  const run = backend === null ? model : compile(model, { backend, fullgraph: true });
  return [1, 2, 3, 4].map((n) => {
    const x = tensor([[n, -n]], { requiresGrad: true });
    run(x).square().sum().backward();
    return [x.grad, model.weight.grad, model.total]
      .map((t) => t?.tolist())
      .concat(model.calls as never);
  });
}

for (const backend of BACKENDS)
  describe(`full backward hooks of modules, backend ${backend}`, () => {
    it('are part of the graph if they use tensors, and run while it is captured', () => {
      const seen: boolean[] = [];
      const register = (model: Counted): void => {
        model.registerFullBackwardPreHook((_, [grad]) => {
          seen.push(compiler.isCompiling());
          return [(grad as Tensor).mul(2)];
        });
        model.registerFullBackwardHook((m, [grad]) => {
          seen.push(compiler.isCompiling());
          (m as Counted).total.add_((grad as Tensor).detach().sum(0));
        });
      };
      const expected = steps(register, null);
      seen.length = 0;
      assert.deepEqual(steps(register, backend), expected);
      assert.deepEqual(seen, [true, true]);
    });

    it('run in every pass if they compute nothing', () => {
      let ran = 0;
      const register = (model: Counted): void => {
        model.registerFullBackwardHook((_, grads) => {
          ran += grads.length;
        });
      };
      const expected = steps(register, null);
      assert.equal(ran, 4);
      assert.deepEqual(steps(register, backend), expected);
      assert.ok(ran >= 8, String(ran));
    });

    it('run in every pass if they change attributes of their module', () => {
      const register = (model: Counted): void => {
        model.registerFullBackwardHook((m, [grad]) => {
          (m as Counted).calls++;
          return [(grad as Tensor).mul((m as Counted).calls)];
        });
      };
      const expected = steps(register, null);
      assert.deepEqual(steps(register, backend), expected);
    });

    it('run in every pass if they read values', () => {
      const register = (model: Counted): void => {
        model.registerFullBackwardHook((_, [grad]) => [
          (grad as Tensor).mul((grad as Tensor).sum().item<number>()),
        ]);
      };
      const expected = steps(register, null);
      assert.deepEqual(steps(register, backend), expected);
    });
  });
