/**
 * Memory that is freed by `resize_(0)` after the forward pass and filled again in the same storage
 * before backward, as sharded training does with gathered parameters. Reference: the same program
 * without.
 */
import assert from 'node:assert/strict';
import {
  autograd,
  empty,
  FreedError,
  InPlaceError,
  memory,
  nn,
  noGrad,
  ops,
  randn,
  rmsNorm,
  scope,
  type Tensor,
} from '../../lib/index.js';

const { linear, layerNorm } = nn.functional;

/** Functions of a weight of shape [4, 4] that save it, or a view of it, for backward. */
const users: Record<string, (x: Tensor, w: Tensor) => Tensor> = {
  'linear, which saves a view': (x, w) => linear(x, w),
  'linear of a batch': (x, w) => linear(x.view(2, 1, 4), w),
  'a product with its transpose': (x, w) => x.matmul(w.t()),
  'a product with a row': (x, w) => x.matmul(w).mul(w.select(0, 1)),
  'a product of elements': (x, w) => x.mul(w.narrow(0, 1, 2)),
  'layer norm': (x, w) => layerNorm(x, [4], w.select(0, 0), w.select(0, 1)),
  'rms norm': (x, w) => rmsNorm(x, [4], w.select(0, 2)),
};

/** How the memory is filled, none of which counts as a change. */
const fills: Record<string, (w: Tensor, values: Tensor) => void> = {
  data: (w, values) => noGrad(() => w.data.copy_(values)),
  'a view of data': (w, values) => noGrad(() => w.data.view(16).copy_(values.view(16))),
  'detach() with its version kept': (w, values) =>
    noGrad(() =>
      autograd.unsafePreserveVersionCounter(w, () => ops.fsdp.copy_(w.detach(), values)),
    ),
};

const close = (a: Tensor | null, b: Tensor | null): void =>
  assert.ok((a as Tensor).allclose(b as Tensor), `${a} and ${b}`);

describe('memory that is freed after forward and filled again before backward', () => {
  for (const [user, fn] of Object.entries(users)) {
    for (const [how, fill] of Object.entries(fills)) {
      it(`is what the gradients of ${user} read, when filled through ${how}`, () => {
        const values = randn([4, 4]);
        const gradients = (refills: boolean): (Tensor | null)[] => {
          const w = new nn.Parameter(values.clone());
          const x = values.narrow(0, 0, 2).clone().requiresGrad_();
          const loss = fn(x, w).square().sum();
          if (refills) {
            const storage = w.untypedStorage();
            storage.resize_(0);
            randn([4, 4]); // takes the memory
            storage.resize_(w.nbytes);
            fill(w, values);
          }
          loss.backward();
          return [x.grad, w.grad];
        };
        const expected = gradients(false);
        gradients(true).forEach((grad, i) => {
          close(grad, expected[i] as Tensor);
        });
      });
    }
  }

  it('may be one buffer behind several parameters, filled and freed in hooks of backward', () => {
    const layers = [0, 1, 2].map(() => new nn.Linear(4, 4));
    const input = randn([3, 4]);
    const forward = (around: (layer: nn.Linear, x: Tensor) => Tensor): Tensor =>
      layers.reduce((x, layer) => around(layer, x).tanh(), input.clone().requiresGrad_());
    forward((layer, x) => layer(x))
      .sum()
      .backward();
    const expected = layers.flatMap((l) => [...l.parameters()].map((p) => p.grad?.clone()));
    const shards = layers.map(({ weight, bias }) => {
      const flat = weight.detach().view(16).clone();
      return { weight: flat, bias: bias?.detach().clone() as Tensor };
    });
    const buffers = layers.map((layer) => {
      layer.zeroGrad();
      const flat = memory.owned(() => empty([20]));
      layer.weight.data = flat.narrow(0, 0, 16).view(4, 4);
      (layer.bias as Tensor).data = flat.narrow(0, 16, 4);
      flat.untypedStorage().resize_(0);
      return flat;
    });
    const gather = (i: number): void =>
      noGrad(() => {
        const flat = buffers[i] as Tensor;
        flat.untypedStorage().resize_(flat.nbytes);
        flat.narrow(0, 0, 16).data.copy_(shards[i]?.weight as Tensor);
        flat.narrow(0, 16, 4).data.copy_(shards[i]?.bias as Tensor);
      });
    const free = (i: number): void => void buffers[i]?.untypedStorage().resize_(0);
    const before = memory.stats().tokens;
    scope(() =>
      forward((layer, x) => {
        const i = layers.indexOf(layer);
        gather(i);
        const output = layer(x);
        free(i);
        autograd.registerMultiGradHook([output], () => gather(i), { mode: 'any' });
        autograd.registerMultiGradHook([x], () => free(i));
        return output;
      })
        .sum()
        .backward(),
    );
    const made = memory.stats().tokens - before;
    for (const buffer of buffers) assert.equal(buffer.untypedStorage().size(), 0);
    const parameters = layers.flatMap((l) => [...l.parameters()]);
    parameters.forEach((p, i) => {
      close(p.grad, expected[i] as Tensor);
    });
    assert.ok(made <= parameters.length, `${made} tokens for ${parameters.length} gradients`);
    for (const buffer of buffers) buffer.dispose();
  });

  it('is an error in backward that was not filled, or counted as changed', () => {
    const build = (): { w: Tensor; loss: Tensor } => {
      const w = new nn.Parameter(randn([4, 4]));
      return { w, loss: linear(randn([2, 4]).requiresGrad_(), w).sum() };
    };
    const changed = build();
    noGrad(() => changed.w.detach().copy_(randn([4, 4])));
    assert.throws(() => changed.loss.backward(), InPlaceError);
    const empty = build();
    empty.w.untypedStorage().resize_(0);
    assert.throws(() => empty.loss.backward(), /bytes/);
    const gone = memory.owned(() => randn([4, 4]));
    const loss = linear(randn([2, 4]).requiresGrad_(), gone).sum();
    gone.dispose();
    assert.throws(() => loss.backward(), FreedError);
  });
});
