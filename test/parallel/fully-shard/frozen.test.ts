/** Frozen groups free their parameters in backward when all uses that it has reached are done. */
import assert from 'node:assert/strict';
import {
  checkpoint,
  checkpointWrapper,
  FullyShardedDataParallel,
  fullyShard,
} from '../../../lib/distributed.js';
import { float64, manualSeed, nn, randn, type Tensor } from '../../../lib/index.js';
import { withRanks } from '../../../lib/testing/index.js';
import { commCounts, difference } from '../compare.js';

class Block extends nn.Module {
  up = new nn.Linear(6, 8);
  down = new nn.Linear(8, 6);
  forward(x: Tensor): Tensor {
    return this.down(this.up(x).relu());
  }
}

/** A trainable layer in a block whose own parameters are frozen. */
class Adapted extends Block {
  adapter = new nn.Linear(8, 8);
  override forward(x: Tensor): Tensor {
    return this.down(this.adapter(this.up(x).relu()));
  }
}

class Inside extends Block {
  override forward(x: Tensor): Tensor {
    return checkpoint((t: Tensor) => super.forward(t), x);
  }
}

type Use = (block: (x: Tensor) => Tensor, x: Tensor) => Tensor;

class Net extends nn.Module {
  emb = new nn.Linear(6, 6);
  blk: nn.Module;
  private readonly use: Use;
  constructor(kind: new () => nn.Module, use: Use) {
    super();
    this.blk = new kind();
    this.use = use;
    this.double();
    for (const [name, p] of this.blk.namedParameters()) p.requiresGrad_(name.startsWith('adapter'));
  }
  forward(x: Tensor): Tensor {
    return this.use((t) => this.blk(t), this.emb(x));
  }
}

const uses: Record<string, Use> = {
  'in a chain': (block, x) => block(block(block(x))),
  'apart in a chain': (block, x) => block(block(x).tanh().mul(2)),
  'side by side': (block, x) => block(x).add(block(x.mul(2))),
  'in a branch that backward does not reach': (block, x) => {
    const y = block(x);
    block(y);
    return block(y).add(y);
  },
};

const wraps: Record<string, (net: Net) => nn.Module> = {
  fullyShard: (net) => {
    fullyShard(net.blk);
    return fullyShard(net);
  },
  FullyShardedDataParallel: (net) => {
    net.blk = new FullyShardedDataParallel(net.blk);
    return new FullyShardedDataParallel(net);
  },
  'fullyShard in a checkpoint': (net) => {
    fullyShard(net.blk);
    net.blk = checkpointWrapper(net.blk);
    return fullyShard(net);
  },
  'FullyShardedDataParallel in a checkpoint': (net) => {
    net.blk = checkpointWrapper(new FullyShardedDataParallel(net.blk));
    return new FullyShardedDataParallel(net);
  },
  'FullyShardedDataParallel of a checkpoint': (net) => {
    net.blk = new FullyShardedDataParallel(checkpointWrapper(net.blk));
    return new FullyShardedDataParallel(net);
  },
};

function make(kind: new () => nn.Module, use: Use): Net {
  manualSeed(0);
  return new Net(kind, use);
}

/** Two steps of a sharded model and of the plain one: backward gives the input equal gradients. */
async function assertAlike(wrap: (net: Net) => nn.Module, kind: new () => nn.Module, use: Use) {
  const plain = make(kind, use);
  const model = wrap(make(kind, use));
  for (let i = 0; i < 2; i++) {
    const x = randn([4, 6], { dtype: float64, requiresGrad: true });
    const other = x.detach().requiresGrad_();
    plain(x).square().sum().backward();
    model(other).square().sum().backward();
    assert.ok((await difference(other.grad as Tensor, x.grad as Tensor)) < 1e-10);
  }
}

describe('a frozen group', () => {
  for (const ranks of [1, 2])
    for (const [op, wrap] of Object.entries(wraps))
      it(
        `runs several times in one forward, on ${ranks} ranks, with ${op}`,
        withRanks(ranks, async () => {
          for (const use of Object.values(uses))
            for (const kind of [Block, Inside]) await assertAlike(wrap, kind, use);
        }),
      );

  for (const [what, use] of Object.entries(uses))
    it(
      `whose inner modules train runs several times: ${what}`,
      withRanks(2, () =>
        assertAlike(
          (net) => {
            fullyShard((net.blk as Adapted).adapter);
            return (wraps['fullyShard'] as (net: Net) => nn.Module)(net);
          },
          Adapted,
          use,
        ),
      ),
    );

  it(
    'is gathered once for uses that follow each other in backward, and freed after them',
    withRanks(2, () => {
      const net = make(Block, uses['in a chain'] as Use);
      fullyShard(net.blk);
      fullyShard(net);
      const y = net(randn([4, 6], { dtype: float64 })).sum();
      assert.deepEqual(
        commCounts(() => y.backward()),
        { allGather: 1, reduceScatter: 1 },
      );
    }),
  );
});
