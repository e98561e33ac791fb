/** `forward` of a sharded module may return tensors in any kind of object. */
import assert from 'node:assert/strict';
import {
  DistributedDataParallel,
  FullyShardedDataParallel,
  fullyShard,
  launch,
} from '../../../lib/distributed.js';
import { manualSeed, nn, noGrad, ones, scope, type Tensor } from '../../../lib/index.js';
import { assertAlike } from '../compare.js';

class Output {
  readonly logits: Tensor;
  constructor(logits: Tensor) {
    this.logits = logits;
  }
}

/** A result that leads to itself. */
class Cyclic extends Output {
  readonly self = this;
}

const SECRET = Symbol('secret');

/** How a module packs its result, and the way back. */
const KINDS: Record<string, readonly [(t: Tensor) => unknown, (result: never) => Tensor]> = {
  'a plain object': [(t) => ({ t }), (r: { t: Tensor }) => r.t],
  'an instance': [(t) => new Output(t), (r: Output) => r.logits],
  'an instance in a list': [(t) => [1, new Output(t)], ([, r]: [number, Output]) => r.logits],
  'an instance that leads to itself': [(t) => new Cyclic(t), (r: Cyclic) => r.logits],
  'a key of a Map': [
    (t) => new Map([[t, 1]]),
    (r: Map<Tensor, number>) => [...r.keys()][0] as Tensor,
  ],
  'a property with a symbol': [(t) => ({ [SECRET]: t }), (r: { [SECRET]: Tensor }) => r[SECRET]],
  'a Set': [(t) => new Set([t]), (r: Set<Tensor>) => [...r][0] as Tensor],
  'an object without a prototype': [
    (t) => Object.assign(Object.create(null), { t }),
    (r: { t: Tensor }) => r.t,
  ],
};

class Block extends nn.Module<[Tensor], unknown> {
  readonly l = new nn.Linear(2, 2);
  readonly pack: (t: Tensor) => unknown;
  constructor(pack: (t: Tensor) => unknown) {
    super();
    this.pack = pack;
  }
  override forward(x: Tensor): unknown {
    return this.pack(this.l(x).relu());
  }
}

class Model extends nn.Module<[Tensor], unknown> {
  readonly first = new nn.Linear(2, 2);
  readonly block: Block;
  constructor(pack: (t: Tensor) => unknown) {
    super();
    this.block = new Block(pack);
  }
  override forward(x: Tensor): unknown {
    return this.block(this.first(x));
  }
}

type Run = (x: Tensor) => unknown;

const WAYS: Record<string, (m: Model) => Run> = {
  fullyShard: (m) => {
    fullyShard(m.block);
    return fullyShard(m);
  },
  FullyShardedDataParallel: (m) =>
    new FullyShardedDataParallel(m, {
      autoWrapPolicy: (module) => module instanceof Block,
      useOrigParams: true,
    }) as unknown as Run,
  DistributedDataParallel: (m) => new DistributedDataParallel(m) as unknown as Run,
};

function modelOf(pack: (t: Tensor) => unknown): Model {
  manualSeed(5);
  return new Model(pack);
}

describe('a sharded module whose forward returns', () => {
  for (const [kind, [pack, back]] of Object.entries(KINDS))
    for (const [way, shard] of Object.entries(WAYS))
      it(`${kind} has the gradients of one device: ${way}`, async () => {
        await launch(1, async () => {
          const [plain, m] = [modelOf(pack), modelOf(pack)];
          for (const run of [(x: Tensor) => plain(x), shard(m)])
            back(run(ones([1, 2])) as never)
              .sum()
              .backward();
          await assertAlike(m, plain, 'gradients', 0);
        });
      });
});

class Private {
  readonly #t: Tensor;
  constructor(t: Tensor) {
    this.#t = t;
  }
  get t(): Tensor {
    return this.#t;
  }
}

/** Results in which tensors are not found, and the way back. */
const UNSEEN: typeof KINDS = {
  'a private field': [(t) => new Private(t), (r: Private) => r.t],
  'a closure': [(t) => () => t, (r: () => Tensor) => r()],
  'a private field beside a property': [
    (t) => Object.assign(new Private(t), { sum: t.sum() }),
    (r: Private) => r.t,
  ],
};

describe('a sharded module whose forward returns a tensor in', () => {
  for (const [kind, [pack, back]] of Object.entries(UNSEEN)) {
    for (const way of ['fullyShard', 'FullyShardedDataParallel'])
      it(`${kind} fails in backward with what is followed: ${way}`, async () => {
        await launch(2, async () => {
          const run = (WAYS[way] as (m: Model) => Run)(modelOf(pack));
          const loss = back(run(ones([1, 2])) as never).sum();
          assert.throws(() => loss.backward(), {
            message:
              /Backward gathers the parameter "block\.l\.weight".* properties of instances\. .* return them, too/,
          });
        });
      });

    it(`${kind}, freed by a scope, says what is followed`, () => {
      const m = modelOf(pack);
      const t = back(noGrad(() => scope(() => m(ones([1, 2])))) as never);
      assert.throws(() => t.sum(), {
        code: 'ERR_FREED',
        message: /not in private fields, getters and closures/,
      });
    });
  }
});
