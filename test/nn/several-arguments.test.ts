/** A module whose `forward` takes several arguments: its types, its hooks, and what wraps it. */
import assert from 'node:assert/strict';
import { checkpointWrapper, DistributedDataParallel } from '../../lib/distributed.js';
import { compile, nn, ones, type Tensor, tensor } from '../../lib/index.js';

interface Options {
  scale?: number;
}

class Masked extends nn.Module<[x: Tensor, mask: Tensor, options?: Options]> {
  linear = new nn.Linear(2, 2, { bias: false });
  forward(x: Tensor, mask: Tensor, { scale = 1 }: Options = {}): Tensor {
    return this.linear(x).mul(scale).maskedFill(mask, 0);
  }
}

class Halves extends nn.Module<[x: Tensor], readonly [Tensor, Tensor]> {
  forward(x: Tensor): readonly [Tensor, Tensor] {
    return [x.narrow(0, 0, 1), x.narrow(0, 1, 1)];
  }
}

type Same<A, B> =
  (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
const is = <_ extends true>(): void => {};

describe('a module of several arguments', () => {
  const [x, mask] = [
    ones([2, 2]),
    tensor([
      [true, false],
      [false, false],
    ]),
  ];

  it('is called with them, and refuses others by its types', () => {
    const model = new Masked();
    const y = model(x, mask, { scale: 2 });
    assert.equal((y.tolist() as number[][])[0]?.[0], 0);
    is<Same<Parameters<typeof model>, [x: Tensor, mask: Tensor, options?: Options]>>();
    is<Same<ReturnType<typeof model>, Tensor>>();
    const [first] = new Halves()(x);
    is<Same<typeof first, Tensor>>();
    // @ts-expect-error the mask is missing
    assert.throws(() => model(x));
    // @ts-expect-error an unknown option
    model(x, mask, { size: 2 });
    // @ts-expect-error one module passes on one tensor
    new nn.Sequential(model);
  });

  it('has hooks that see them all', () => {
    const model = new Masked();
    const seen: unknown[] = [];
    model.registerForwardPreHook((module, args) => {
      is<Same<typeof module, Masked>>();
      is<Same<typeof args, [x: Tensor, mask: Tensor, options?: Options]>>();
      const [input, , options] = args;
      return [input, mask.logicalNot(), options ?? {}];
    });
    model.registerForwardHook((_, args, result) => {
      is<Same<typeof result, Tensor>>();
      seen.push(args.length, result.shape);
    });
    assert.deepEqual((model(x, mask).tolist() as number[][])[1], [0, 0]);
    assert.deepEqual(seen, [3, [2, 2]]);
  });

  it('keeps its arguments in lists, when it is compiled, checkpointed or wrapped', () => {
    const model = new Masked();
    const expected = model(x, mask).tolist();
    const list = new nn.ModuleList([model]);
    for (const each of list) {
      is<Same<typeof each, Masked>>();
      assert.deepEqual(each(x, mask).tolist(), expected);
    }
    const compiled = compile(model);
    assert.deepEqual(compiled(x, mask).tolist(), expected);
    const wrapped = checkpointWrapper(model);
    assert.deepEqual(wrapped(x, mask).tolist(), expected);
    // @ts-expect-error the mask is missing
    const refused = (): unknown => [compiled(x), wrapped(x), list.at(0)(x)];
    assert.throws(refused);
    const parallel = () => new DistributedDataParallel(model);
    type Wrapped = ReturnType<typeof parallel>;
    is<Same<Parameters<Wrapped>, Parameters<Masked>>>();
  });
});
