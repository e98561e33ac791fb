/** Which arguments and results the backward hooks of modules follow. Reference: PyTorch. */
import assert from 'node:assert/strict';
import { nn, ones, type Tensor } from '../../lib/index.js';

class Packed {
  readonly y: Tensor;
  constructor(y: Tensor) {
    this.y = y;
  }
}

type Pack = (y: Tensor) => unknown;

class Packing extends nn.Module<[x: Tensor], unknown> {
  readonly pack: Pack;
  constructor(pack: Pack) {
    super();
    this.pack = pack;
  }
  override forward(x: Tensor): unknown {
    return this.pack(x.mul(2));
  }
}

const FOLLOWED: Readonly<Record<string, readonly [Pack, (result: never) => Tensor]>> = {
  'a tensor': [(y) => y, (y: Tensor) => y],
  'an array': [(y) => [y, 1], ([y]: [Tensor]) => y],
};
const NOT_FOLLOWED: typeof FOLLOWED = {
  'a plain object': [(y) => ({ y }), (result: { y: Tensor }) => result.y],
  'an array in an array': [(y) => [[y]], ([[y]]: [[Tensor]]) => y],
  'a Map': [(y) => new Map([['y', y]]), (result: Map<string, Tensor>) => result.get('y') as Tensor],
  'a Set': [(y) => new Set([y]), (result: Set<Tensor>) => [...result][0] as Tensor],
  'an instance': [(y) => new Packed(y), (result: Packed) => result.y],
};

/** The hooks that ran in each of two backward passes, and the gradient of the argument. */
function seenOf([pack, back]: readonly [Pack, (result: never) => Tensor]) {
  const module = new Packing(pack);
  const seen: string[] = [];
  module.registerFullBackwardPreHook((_, grads) => void seen.push(`before ${grads.length}`));
  module.registerFullBackwardHook((_, inputs, outputs) => {
    seen.push(`after ${inputs.length} ${outputs.length}`);
  });
  const x = ones([2], { requiresGrad: true });
  const loss = back(module(x) as never).sum();
  loss.backward(null, { retainGraph: true });
  loss.backward();
  return { seen, grad: x.grad?.tolist() };
}

describe('full backward hooks of a module', () => {
  for (const [name, kind] of Object.entries(FOLLOWED))
    it(`run in each pass for a result that is ${name}`, () => {
      const each = ['before 1', 'after 1 1'];
      assert.deepEqual(seenOf(kind), { seen: [...each, ...each], grad: [4, 4] });
    });

  for (const [name, kind] of Object.entries(NOT_FOLLOWED))
    it(`do not run for a result that is ${name}, whose gradients are right`, () => {
      assert.deepEqual(seenOf(kind), { seen: [], grad: [4, 4] });
    });
});
