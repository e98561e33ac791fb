/** `forward` of a sharded module may return tensors in any kind of object. */
import {
  DistributedDataParallel,
  FullyShardedDataParallel,
  fullyShard,
  launch,
} from '../../../lib/distributed.js';
import { manualSeed, nn, ones, type Tensor } from '../../../lib/index.js';
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
