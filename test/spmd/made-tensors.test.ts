/** Tensors that a step makes: they count as replicated, and the step is that of one rank. */
import assert from 'node:assert/strict';
import {
  CollectiveError,
  DTensor,
  distributeTensor,
  dtensorArange,
  initDeviceMesh,
  Replicate,
  Shard,
} from '../../lib/distributed.js';
import {
  arange,
  bfloat16,
  cat,
  empty,
  eye,
  full,
  fullLike,
  linspace,
  manualSeed,
  nn,
  noGrad,
  ones,
  optim,
  rand,
  randn,
  randnLike,
  ShardingError,
  stack,
  type Tensor,
  tensor,
  tril,
  triu,
  where,
  zeros,
  zerosLike,
} from '../../lib/index.js';
import { checkpoint } from '../../lib/parallel/index.js';
import * as spmd from '../../lib/spmd/index.js';
import { onRanks, valuesOf } from '../distributed/support/on-ranks.js';

const [ROWS, LENGTH, DIM] = [4, 6, 8];
const F = nn.functional;

class Net extends nn.Module<[x: Tensor], Tensor> {
  readonly first = new nn.Linear(DIM, DIM);
  readonly second = new nn.Linear(DIM, DIM);
  readonly table = new nn.Embedding(2 * LENGTH, DIM);
  private readonly run: Run;

  constructor(run: Run) {
    super();
    this.run = run;
  }

  forward(x: Tensor): Tensor {
    return this.run(this, x);
  }
}
type Run = (net: Net, x: Tensor) => Tensor;

const scoresOf = (net: Net, x: Tensor): Tensor =>
  net.first(x).matmul(net.second(x).transpose(-1, -2)).div(Math.sqrt(DIM));
/** Attention whose scores `mask` changes. */
const attending =
  (mask: (scores: Tensor) => Tensor): Run =>
  (net, x) =>
    mask(scoresOf(net, x)).softmax(-1).matmul(x);

const programs: Readonly<Record<string, Run>> = {
  'positions by arange': (net, x) =>
    net
      .first(x)
      .add(net.table(arange(0, x.shape[1]!)))
      .gelu(),
  'positions that are expanded to the batch': (net, x) => {
    const [rows, length] = x.shape as [number, number];
    return net.first(x).mul(net.table(arange(0, length).unsqueeze(0).expand([rows, length])));
  },
  'sines of positions, written in place': (net, x) => {
    const angles = arange(0, x.shape[1]!)
      .unsqueeze(1)
      .div(tensor([1, 10, 100, 1000]));
    const table = zeros([x.shape[1]!, DIM]);
    table.narrow(1, 0, DIM / 2).copy_(angles.sin());
    table.narrow(1, DIM / 2, DIM / 2).copy_(angles.cos());
    return net.second(net.first(x).add(table));
  },
  'a causal mask by tril': attending((scores) =>
    scores.maskedFill(tril(ones([LENGTH, LENGTH])).eq(0), -Infinity),
  ),
  'an additive mask by triu': attending((scores) =>
    scores.add(triu(full([LENGTH, LENGTH], -Infinity), 1)),
  ),
  'a mask by where': attending((scores) =>
    where(tril(ones([LENGTH, LENGTH])).bool(), scores, full([LENGTH, LENGTH], -1e9)),
  ),
  'a window of positions': attending((scores) => {
    const at = arange(0, LENGTH);
    const apart = at.unsqueeze(1).sub(at.unsqueeze(0));
    return scores.maskedFill(apart.lt(0).logicalOr(apart.gt(2)), -1e9);
  }),
  'linear biases by head': (net, x) => {
    const heads = (t: Tensor): Tensor => t.view([-1, LENGTH, 2, DIM / 2]).transpose(1, 2);
    const apart = arange(0, LENGTH).unsqueeze(0).sub(arange(0, LENGTH).unsqueeze(1)).abs();
    const bias = apart.mul(tensor([0.5, 0.25]).view([2, 1, 1])).neg();
    const [q, k] = [heads(net.first(x)), heads(net.second(x))];
    return F.scaledDotProductAttention(q, k, k, bias).transpose(1, 2).flatten(2);
  },
  'relative positions that an embedding has': (net, x) => {
    const at = arange(0, LENGTH);
    const apart = at.unsqueeze(1).sub(at.unsqueeze(0)).add(LENGTH);
    return net.first(x).add(net.table(apart).mean(0));
  },
  'a rotary table': (net, x) => {
    const rates = arange(0, DIM, 2).div(-DIM).exp();
    const angles = arange(0, LENGTH).outer(rates);
    const [cos, sin] = [angles.cos().unsqueeze(0), angles.sin().unsqueeze(0)];
    const [a, b] = net.first(x).chunk(2, -1) as [Tensor, Tensor];
    return cat([a.mul(cos).sub(b.mul(sin)), a.mul(sin).add(b.mul(cos))], -1);
  },
  'initial states that are zeros': (net, x) => {
    let state = zeros([x.shape[0]!, DIM]);
    const states: Tensor[] = [];
    for (const input of x.unbind(1)) {
      state = net.first(input).add(net.second(state)).tanh();
      states.push(state);
    }
    return stack(states, 1);
  },
  'initial states that a linear layer sees first': (net, x) => {
    const state = net.second(zeros([x.shape[0]!, 1, DIM]));
    return net.first(x).mul(state.sigmoid());
  },
  'a token in front of all others': (net, x) => {
    const front = ones([1, 1, DIM]).mul(0.5).expand([x.shape[0]!, 1, DIM]);
    return net.first(cat([front, x], 1));
  },
  'padding at the end': (net, x) =>
    net.second(F.pad(net.first(x), [0, 0, 0, 2])).add(zeros([LENGTH + 2, 1])),
  'a mask of lengths of the batch': (net, x) => {
    const lengths = x.select(2, 0).gt(0).sum(1).add(1);
    const isThere = arange(0, LENGTH).unsqueeze(0).lt(lengths.unsqueeze(1));
    return net.first(x).mul(isThere.unsqueeze(2));
  },
  'scalars by tensor': (net, x) =>
    net
      .first(x)
      .mul(tensor(0.5))
      .clamp(tensor(-1), tensor(1))
      .add(tensor([2])),
  'weights along the positions': (net, x) =>
    net
      .first(x)
      .square()
      .mul(linspace(1, 0, LENGTH).unsqueeze(1)),
  'a product with a made matrix': (net, x) => net.first(x).matmul(eye(DIM).mul(2).sub(0.1)),
  'a made matrix times a batch': (net, x) => tril(ones([LENGTH, LENGTH])).matmul(net.first(x)),
  'positions that choose': (net, x) =>
    net
      .first(x)
      .indexSelect(1, arange(LENGTH - 1, -1, -1))
      .gather(2, zeros([x.shape[0]!, LENGTH, DIM], { dtype: 'int64' })),
  'classes by oneHot': (net, x) =>
    net.first(x).mul(F.oneHot(arange(0, LENGTH).remainder(2), 2).narrow(1, 0, 1)),
  'targets and class weights': (net, x) => {
    const targets = arange(0, x.shape[0]! * LENGTH).remainder(DIM);
    const weight = linspace(0.5, 1, DIM);
    return F.crossEntropy(net.first(x).flatten(0, 1), targets, { weight });
  },
  'targets of equal shape': (net, x) =>
    F.mseLoss(net.first(x), ones([x.shape[0]!, LENGTH, DIM])).add(
      F.binaryCrossEntropyWithLogits(net.second(x), full([x.shape[0]!, LENGTH, DIM], 0.5)),
    ),
  'tensors like others': (net, x) => {
    const y = net.first(x);
    return y
      .maximum(zerosLike(y))
      .add(fullLike(ones([LENGTH, 1]), 0.5))
      .add(y.newZeros([DIM]));
  },
  'another dtype': (net, x) =>
    net
      .first(x)
      .add(arange(0, DIM).to(bfloat16))
      .add(arange(0, DIM, 1, { dtype: 'float64' })),
  'values of one call that another uses': (net, x) => {
    const mask = tril(ones([LENGTH, LENGTH]));
    const causal = attending((scores) => scores.maskedFill(mask.eq(0), -1e9));
    return causal(net, causal(net, x)).add(mask.sum(1).unsqueeze(1));
  },
  'code that backward runs again': (net, x) =>
    checkpoint(
      (t: Tensor) =>
        net
          .first(t)
          .add(net.table(arange(0, LENGTH)))
          .mul(ones([DIM]).mul(2))
          .tanh(),
      x,
    ),
};

type Step = (net: Net, optimizer: optim.SGD, x: Tensor) => Tensor;
const trainStep: Step = (net, optimizer, x) => {
  const loss = net(x).square().mean();
  loss.backward();
  optimizer.step();
  optimizer.zeroGrad();
  return loss;
};

const wholeOf = async (t: Tensor): Promise<number[]> => {
  const whole = t instanceof DTensor ? t.fullTensor() : t;
  return (await valuesOf(whole.detach())).map(Number);
};

interface Ranks {
  readonly shape: readonly number[];
  /** Whether parameters are shards along the last mesh dim. */
  readonly isSharded: boolean;
}

function shardParameters(net: Net, { shape }: Ranks): void {
  const mesh = initDeviceMesh('cpu', [...shape]);
  const placements = shape.map((_, i) => (i === shape.length - 1 ? Shard(0) : Replicate()));
  for (const layer of [net.first, net.second, net.table])
    for (const [name, p] of [...layer.namedParameters()])
      (layer as unknown as Record<string, unknown>)[name] = new nn.Parameter(
        distributeTensor(p.detach(), mesh, placements),
      );
}

/** The parameters after two steps, and the losses. Without ranks, the step is not compiled. */
async function trained(run: Run, rank = 0, ranks: Ranks | null = null): Promise<number[]> {
  manualSeed(0);
  const net = new Net(run);
  const { shape, isSharded } = ranks ?? { shape: [1], isSharded: false };
  if (ranks !== null && isSharded) shardParameters(net, ranks);
  const optimizer = new optim.SGD(net.parameters(), { lr: 0.5, capturable: true });
  const mesh = ranks === null ? null : initDeviceMesh('cpu', [...shape]);
  const isOfTwo = isSharded && shape.length > 1;
  const batch = () => (isOfTwo ? [Shard(0), Replicate()] : shape.map(() => Shard(0)));
  const step =
    mesh === null ? trainStep : spmd.compile({ parallelMode: { mesh, batch } })(trainStep);
  const [count, at] = isOfTwo
    ? [shape[0]!, Math.floor(rank / shape[1]!)]
    : [mesh?.size() ?? 1, rank];
  const results: Tensor[] = [];
  for (let i = 0; i < 2; i++) {
    manualSeed(10 + i);
    const x = randn([ROWS, LENGTH, DIM]);
    results.push(step(net, optimizer, x.narrow(0, (at * ROWS) / count, ROWS / count).clone()));
  }
  return (await Promise.all([...results, ...net.parameters()].map(wholeOf))).flat();
}

const LAYOUTS: readonly Ranks[] = [[1], [2], [4], [2, 2]].flatMap((shape) =>
  [false, true].map((isSharded) => ({ shape, isSharded })),
);

describe('tensors that a step makes', () => {
  for (const [name, run] of Object.entries(programs))
    it(`are equal on all ranks: ${name}`, async () => {
      const expected = await trained(run);
      for (const ranks of LAYOUTS)
        await onRanks(
          ranks.shape.reduce((a, b) => a * b),
          async (rank) => {
            const seen = await trained(run, rank, ranks);
            assert.equal(seen.length, expected.length);
            seen.forEach((value, i) =>
              assert.ok(
                Math.abs(value - expected[i]!) < 1e-4 * Math.max(1, Math.abs(expected[i]!)),
                `${JSON.stringify(ranks)}, ${i}: ${value}, expected ${expected[i]}`,
              ),
            );
          },
        );
    });
});

describe('tensors of which a step does not know that they are equal on all ranks', () => {
  type RunBeside = (net: Net, x: Tensor, outer: Tensor) => Tensor;
  const refused: Readonly<Record<string, readonly [run: RunBeside, message: RegExp]>> = {
    'that it closes over': [(net, x, outer) => net.first(x).add(outer), /closes over are plain/],
    'made of what it closes over': [
      (net, x, outer) => net.first(x).add(arange(0, DIM).mul(outer)),
      /closes over are plain/,
    ],
    'with memory that it closes over': [
      (net, x, outer) => {
        const made = zeros([DIM]);
        made.data = outer;
        return net.first(x).add(made);
      },
      /closes over are plain/,
    ],
    'into which it writes what it closes over': [
      (net, x, outer) => {
        const made = zeros([2, DIM]);
        const row = made.select(0, 1);
        row.copy_(outer);
        return net.first(x).add(made.select(0, 1));
      },
      /closes over are plain/,
    ],
    'of local shards': [
      (net, x) => net.first(x).add((x as DTensor).toLocal().mean(0)),
      /got a plain one/,
    ],
    'of shards that it makes': [
      (net, x) => {
        const mesh = (x as DTensor).deviceMesh;
        const shard = dtensorArange(0, 2 * DIM, 1, { mesh, placements: [Shard(0)] }) as DTensor;
        return net.first(x).add(shard.toLocal());
      },
      /got a plain one/,
    ],
    'that it draws': [
      (net, x) => net.first(x).add(rand([DIM]).mul(2)),
      /random numbers that the step draws.*randLike\(x\)/,
    ],
    'into which it draws': [
      (net, x) => net.first(x).add(noGrad(() => empty([DIM]).normal_())),
      /random numbers that the step draws/,
    ],
    'into which it writes what is distributed': [
      (net, x) => zeros([x.shape[0]!, LENGTH, DIM]).add_(net.first(x)),
      /writes what is distributed into it.*newZeros/,
    ],
  };
  for (const [name, [run, message]] of Object.entries(refused))
    it(`are refused beside distributed ones: ${name}`, async () => {
      await onRanks(2, () => {
        const outer = ones([DIM]);
        const net = new Net((own, x) => run(own, x, outer));
        const optimizer = new optim.SGD(net.parameters(), { capturable: true });
        const step = spmd.compile()(trainStep);
        assert.throws(
          () => step(net, optimizer, randn([ROWS, LENGTH, DIM])),
          (error: Error) => {
            assert.ok(error instanceof ShardingError, String(error));
            assert.match(error.message, /^spmd\.compile: /);
            assert.match(error.message, message);
            return true;
          },
        );
      });
    });

  it('have another way: numbers are drawn beside a distributed tensor', async () => {
    await onRanks(2, () => {
      const net = new Net((own, x) => own.first(x).add(randnLike(x)));
      const optimizer = new optim.SGD(net.parameters(), { capturable: true });
      spmd.compile()(trainStep)(net, optimizer, randn([ROWS, LENGTH, DIM]));
    });
  });
});

describe('tensors that a step makes of the rank', () => {
  const made: Record<string, (rank: number) => Tensor> = {
    'full float32[8]': (rank) => full([DIM], rank),
    'mul float32[8]': (rank) => ones([DIM]).mul(rank),
    'values float32[]': (rank) => tensor(rank + 0.5),
    'zeros float32[8]': (rank) => {
      const t = zeros([DIM]);
      t.narrow(0, 2, 1).fill_(rank);
      return t;
    },
  };
  for (const [name, make] of Object.entries(made))
    it(`are an error that names them and both ranks: ${name}`, async () => {
      await onRanks(2, async (rank) => {
        manualSeed(0);
        const model = new nn.Linear(DIM, DIM);
        const adam = new optim.AdamW(model.parameters(), { capturable: true });
        const step = spmd.compile()((net: nn.Linear, optimizer: optim.AdamW, x: Tensor) => {
          net(x)
            .add(net.weight.mul(make(rank)).sum())
            .mean()
            .backward();
          optimizer.step();
          optimizer.zeroGrad();
        });
        await assert.rejects(
          async () => {
            step(model, adam, ones([2, DIM]));
            await model.weight.detach().read();
          },
          (error: Error) =>
            error instanceof CollectiveError &&
            /of what the step makes: /.test(error.message) &&
            /made-tensors\.test\.ts:\d+.*#.* #/.test(error.message) &&
            error.message.includes(name.split(' ')[1] as string),
        );
      });
    });
});
