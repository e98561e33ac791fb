/** `forward` of a sharded module may get tensors in any kind of object. */
import assert from 'node:assert/strict';
import {
  FullyShardedDataParallel,
  fullyShard,
  MixedPrecision,
  MixedPrecisionPolicy,
} from '../../../lib/distributed.js';
import { bfloat16, int64, manualSeed, nn, ones, type Tensor } from '../../../lib/index.js';
import { withRanks } from '../../../lib/testing/index.js';

class Input {
  readonly x: Tensor;
  constructor(x: Tensor) {
    this.x = x;
  }
}

type Kind = readonly [pack: (t: Tensor) => unknown, back: (given: never) => Tensor];

/** How an argument holds a tensor, and the way back. */
const COPIED: Readonly<Record<string, Kind>> = {
  'a plain object': [(x) => ({ x }), (given: { x: Tensor }) => given.x],
  'a list': [(x) => [1, x], ([, x]: [number, Tensor]) => x],
  'a Map': [(x) => new Map([['x', x]]), (given: Map<string, Tensor>) => given.get('x') as Tensor],
  'a Set': [(x) => new Set([x]), (given: Set<Tensor>) => [...given][0] as Tensor],
  'a Set in a list': [(x) => [new Set([x])], ([given]: [Set<Tensor>]) => [...given][0] as Tensor],
  'an object without a prototype': [
    (x) => Object.assign(Object.create(null), { x }),
    (given: { x: Tensor }) => {
      assert.equal(Object.getPrototypeOf(given), null);
      return given.x;
    },
  ],
  'a plain object in one without a prototype': [
    (x) => Object.assign(Object.create(null), { inner: { x } }),
    (given: { inner: { x: Tensor } }) => given.inner.x,
  ],
};

const KINDS: Readonly<Record<string, Kind>> = {
  ...COPIED,
  'an instance': [(x) => new Input(x), (given: Input) => given.x],
  'an instance in a Set': [
    (x) => new Set([new Input(x)]),
    (given: Set<Input>) => ([...given][0] as Input).x,
  ],
};

/** Computes with what its argument holds, in the dtype of its weight. */
class Block extends nn.Module<[given: unknown], Tensor> {
  readonly l = new nn.Linear(2, 2);
  seen = '';
  private readonly back: (given: never) => Tensor;
  constructor(back: (given: never) => Tensor) {
    super();
    this.back = back;
  }
  override forward(given: unknown): Tensor {
    const x = this.back(given as never);
    this.seen = x.dtype.name;
    return this.l(x.to(this.l.weight.dtype)).tanh();
  }
}

class Model extends nn.Module<[x: Tensor], Tensor> {
  readonly first = new nn.Linear(2, 2);
  readonly block: Block;
  private readonly pack: (t: Tensor) => unknown;
  constructor([pack, back]: Kind) {
    super();
    this.block = new Block(back);
    this.pack = pack;
  }
  override forward(x: Tensor): Tensor {
    return this.block(this.pack(this.first(x)));
  }
}

function modelOf(kind: Kind): Model {
  manualSeed(5);
  return new Model(kind);
}

describe('a sharded module whose forward gets', () => {
  for (const [name, kind] of Object.entries(KINDS)) {
    const [pack] = kind;
    const isCopied = name in COPIED;

    it(
      `${name} ${isCopied ? 'computes on tensors in paramDtype' : 'casts what is in it itself'}`,
      withRanks(2, async () => {
        const block = modelOf(kind).block;
        const mpPolicy = new MixedPrecisionPolicy({ paramDtype: bfloat16 });
        const given = pack(ones([1, 2]));
        fullyShard(block, { mpPolicy })(given).sum().backward();
        assert.equal(block.seen, isCopied ? 'bfloat16' : 'float32');
        assert.equal(block.l.weight.grad?.dtype.name, 'float32');
        block(pack(ones([1, 2], { dtype: int64 })));
        assert.equal(block.seen, 'int64');
      }),
    );

    it(
      `${name} does so under FullyShardedDataParallel`,
      withRanks(2, () => {
        const block = modelOf(kind).block;
        const model = new FullyShardedDataParallel(block, {
          mixedPrecision: new MixedPrecision({ paramDtype: bfloat16, castForwardInputs: true }),
        });
        model(pack(ones([1, 2])))
          .sum()
          .backward();
        assert.equal(block.seen, isCopied ? 'bfloat16' : 'float32');
      }),
    );

    it(
      `${name} frees frozen parameters when backward has passed it`,
      withRanks(2, () => {
        const model = modelOf(kind);
        for (const p of model.block.parameters()) p.requiresGrad_(false);
        fullyShard(model.block);
        fullyShard(model);
        let memory: { size(): number } | null = null;
        let atFirst = -1;
        model.block.registerForwardPreHook(() => {
          memory = model.block.l.weight.untypedStorage();
        });
        model.first.weight.registerHook(() => {
          atFirst = memory?.size() ?? -1;
        });
        model(ones([1, 2]))
          .sum()
          .backward();
        assert.equal(atFirst, 0);
      }),
    );
  }
});
