/** `withDispatchMode` sees each op below autograd, and may replace its results. */
import assert from 'node:assert/strict';
import { library, ones, type Tensor, tensor } from '../../lib/index.js';

describe('withDispatchMode', () => {
  it('sees the calls of the function, with what they do', () => {
    const seen: [string, boolean, boolean][] = [];
    const x = ones([2, 2]);
    library.withDispatchMode(
      (call) => {
        seen.push([call.op, call.isInPlace, call.isView]);
        return call.run();
      },
      () => x.t().exp().add_(1),
    );
    assert.deepEqual(seen, [
      ['transpose', false, true],
      ['exp', false, false],
      ['add', true, false],
    ]);
  });

  it('gives its results to autograd, and does not see its own ops', () => {
    const x = tensor([1, 2], { requiresGrad: true });
    let calls = 0;
    const y = library.withDispatchMode(
      (call) => {
        calls++;
        return call.run().map((t) => t.mul(10));
      },
      () => x.mul(2),
    );
    assert.equal(calls, 1);
    assert.deepEqual(y.tolist(), [20, 40]);
    y.sum().backward();
    assert.deepEqual(x.grad?.tolist(), [2, 2]);
  });

  it('nests, and ends with its function, also after an error', () => {
    const seen: string[] = [];
    const mode =
      (name: string) =>
      (call: library.DispatchedCall): readonly Tensor[] => {
        seen.push(`${name} ${call.op}`);
        return call.run();
      };
    library.withDispatchMode(mode('outer'), () => {
      library.withDispatchMode(mode('inner'), () => ones([1]).exp());
      ones([1]).sin();
    });
    assert.throws(
      () =>
        library.withDispatchMode(mode('failing'), () => {
          throw new RangeError('no');
        }),
      RangeError,
    );
    ones([1]).cos();
    const names = seen.filter((text) => !/full|fill/.test(text));
    assert.deepEqual(names, ['inner exp', 'outer exp', 'outer sin']);
  });

  it('refuses wrong arguments and results', () => {
    const x = ones([1]);
    assert.throws(() => library.withDispatchMode(3 as never, () => 1), { code: 'ERR_ARGUMENT' });
    assert.throws(() => library.withDispatchMode(() => [], 3 as never), { code: 'ERR_ARGUMENT' });
    const bad = () => 3 as never;
    assert.throws(() => library.withDispatchMode(bad, () => x.exp()), /list of tensors, got 3/);
    assert.throws(
      () =>
        library.withDispatchMode(
          (c) => c.run(),
          async () => 1,
        ),
      /synchronous/,
    );
    assert.deepEqual([library.hasOp('exp'), library.hasOp('nope')], [true, false]);
  });
});
