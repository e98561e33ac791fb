/** Several passes before one backward: the state of a sharded module is that of each pass. */
import {
  checkpoint,
  checkpointWrapper,
  FullyShardedDataParallel,
  fullyShard,
  launch,
} from '../../../lib/distributed.js';
import { full, manualSeed, nn, noGrad, type Tensor } from '../../../lib/index.js';
import { assertAlike } from '../compare.js';

type Layer = nn.Module<[Tensor], Tensor>;
type Shard = (layers: nn.Sequential) => Layer;

/** Linear layers of which each may be called and gathered by itself. */
function model(layers: number): nn.Sequential {
  manualSeed(5);
  return new nn.Sequential(
    ...Array.from({ length: layers }, () => new nn.Linear(2, 2, { bias: false })),
  );
}

const eachLayer = (reshardAfterForward: boolean | null): Shard => {
  return (m) => {
    for (const layer of m.children()) fullyShard(layer, { reshardAfterForward });
    return fullyShard(m, { reshardAfterForward });
  };
};

const WAYS: Record<string, Shard> = {
  'fullyShard on each layer': eachLayer(null),
  'fullyShard that keeps whole parameters': eachLayer(false),
  'fullyShard on the model': (m) => fullyShard(m),
  'flat parameters of each layer': (m) =>
    new FullyShardedDataParallel(m, {
      autoWrapPolicy: (module) => module instanceof nn.Linear,
      useOrigParams: true,
    }) as unknown as Layer,
};

/** A forward pass, in which a checkpoint stands where its name says. */
const CHECKPOINTS: Record<string, (m: Layer, x: Tensor) => Tensor> = {
  'no checkpoint': (m, x) => m(x),
  'a checkpoint around the model': (m, x) => checkpoint((t: Tensor) => m(t), x),
  'a checkpoint around the model and its loss': (m, x) =>
    checkpoint((t: Tensor) => m(t).square(), x),
};

/** Takes the gradients of a score on one rank, of a model that is sharded and one that is not. */
async function assertEqual(
  layers: number,
  shard: Shard,
  score: (m: Layer) => Tensor,
): Promise<void> {
  await launch(1, async () => {
    const [m, plain] = [model(layers), model(layers)];
    score(plain as unknown as Layer).backward();
    score(shard(m)).backward();
    await assertAlike(m, plain, 'gradients', 1e-5);
  });
}

describe('a sharded model with several passes before one backward', () => {
  for (const [way, shard] of Object.entries(WAYS))
    for (const [name, forward] of Object.entries(CHECKPOINTS))
      for (const layers of [2, 3])
        for (const passes of [1, 2, 4])
          it(`has the gradients of one device: ${way}, ${name}, ${layers} layers, ${passes} passes`, async () => {
            const score = (m: Layer): Tensor =>
              Array.from({ length: passes }, (_, k) =>
                forward(m, full([1, 2], k + 1))
                  .square()
                  .sum(),
              ).reduce((a, b) => a.add(b));
            await assertEqual(layers, shard, score);
          });

  for (const [way, shard] of Object.entries(WAYS))
    for (const [name, forward] of Object.entries(CHECKPOINTS)) {
      const title = `${way}, ${name}`;
      it(`has them after a pass without gradients before backward: ${title}`, async () => {
        const score = (m: Layer): Tensor => {
          const loss = forward(m, full([1, 2], 1))
            .square()
            .sum();
          noGrad(() => m(full([1, 2], 1)));
          return loss;
        };
        await assertEqual(2, shard, score);
      });

      it(`has them with a pass without gradients in a hook of backward: ${title}`, async () => {
        const score = (m: Layer): Tensor => {
          const y = forward(m, full([1, 2], 1));
          y.registerHook(() => {
            noGrad(() => m(full([1, 2], 1)));
          });
          const hidden = y.mul(1);
          hidden.registerHook(() => {
            noGrad(() => m(full([1, 2], 1)));
          });
          return hidden.square().sum();
        };
        await assertEqual(2, shard, score);
      });
    }

  it('has them with checkpoints as wrappers around and inside of sharded modules', async () => {
    const score = (m: Layer): Tensor =>
      [1, 2, 3]
        .map((k) =>
          m(full([1, 2], k))
            .square()
            .sum(),
        )
        .reduce((a, b) => a.add(b));
    const around = (m: nn.Sequential): Layer => {
      const layers = [...m.children()] as Layer[];
      return fullyShard(
        new nn.Sequential(...layers.map((l) => checkpointWrapper(fullyShard(l)) as Layer)),
      );
    };
    const inside = (m: nn.Sequential): Layer => {
      const layers = [...m.children()] as Layer[];
      return fullyShard(
        new nn.Sequential(...layers.map((l) => fullyShard(checkpointWrapper(l) as Layer))),
      );
    };
    for (const shard of [around, inside]) await assertEqual(3, shard, score);
  });
});
