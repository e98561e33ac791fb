/** Modules on the device `meta`: made without memory, then given memory and values. */
import assert from 'node:assert/strict';
import { tmpdir } from 'node:os';
import path from 'node:path';
import {
  CheckpointError,
  DeviceError,
  getRngState,
  manualSeed,
  memory,
  nn,
  ones,
  saveSafetensors,
  type Tensor,
  withDevice,
  zeros,
} from '../../lib/index.js';

/** Every layer with parameters of its own. */
const layers: Record<string, (options: nn.LayerOptions) => nn.AnyModule> = {
  Linear: (place) => new nn.Linear(3, 4, place),
  'Linear without bias': (place) => new nn.Linear(3, 4, false, place),
  Bilinear: (place) => new nn.Bilinear(3, 4, 2, place),
  Embedding: (place) => new nn.Embedding(5, 3, 1, place),
  LayerNorm: (place) => new nn.LayerNorm([3, 2], place),
  RMSNorm: (place) => new nn.RMSNorm(3, place),
  GroupNorm: (place) => new nn.GroupNorm(1, 3, place),
  BatchNorm1d: (place) => new nn.BatchNorm1d(3, place),
  PReLU: (place) => new nn.PReLU(2, 0.5, place),
  MultiheadAttention: (place) => new nn.MultiheadAttention(4, 2, place),
  'MultiheadAttention of other keys': (place) =>
    new nn.MultiheadAttention(4, 2, { kdim: 3, vdim: 5, ...place }),
};

type Resettable = nn.AnyModule & { resetParameters(): void };

const state = (module: nn.AnyModule): unknown =>
  Object.entries(module.stateDict()).map(([name, t]) => [name, t.dtype.name, t.tolist()]);
const described = (module: nn.AnyModule): unknown =>
  [...module.namedParameters(), ...module.namedBuffers()].map(([name, t]) => [
    name,
    t.shape,
    t.strides,
    t.dtype.name,
    t.requiresGrad,
  ]);

describe('resetParameters', () => {
  for (const [name, make] of Object.entries(layers))
    it(`of ${name} draws the numbers of the constructor, after meta and toEmpty too`, () => {
      manualSeed(7);
      const expected = make({});
      const after = getRngState();
      const module = make({ device: 'meta', dtype: 'float32' }) as Resettable;
      assert.ok([...module.parameters()].every((p) => p.isMeta));
      module.toEmpty({ device: 'cpu' });
      manualSeed(7);
      module.resetParameters();
      assert.deepEqual(state(module), state(expected));
      assert.deepEqual(getRngState(), after);
      assert.deepEqual(described(module), described(expected));
    });

  it('of a whole model gives each layer its kind of values, parents first or children first', () => {
    for (const parentsFirst of [true, false]) {
      const model = withDevice('meta', () => new nn.TransformerEncoderLayer(8, 2)).toEmpty('cpu');
      for (const p of model.parameters()) nn.init.constant_(p, 3);
      const reset = (module: nn.AnyModule): void => {
        if ('resetParameters' in module) (module as Resettable).resetParameters();
      };
      if (parentsFirst) for (const module of model.modules()) reset(module);
      else model.apply(reset);
      assert.deepEqual(model.self_attn.out_proj.bias?.unique().tolist(), [0]);
      assert.deepEqual(model.norm1.weight?.unique().tolist(), [1]);
      for (const p of model.parameters()) assert.ok(p.abs().max().item() <= 1);
    }
  });
});

describe('toEmpty', () => {
  it('keeps parameters as objects, shared ones shared, and requiresGrad', () => {
    class Tied extends nn.Module {
      embed = new nn.Embedding(4, 3);
      head = new nn.Linear(3, 4, false);
      frozen = new nn.Parameter(zeros([2]), false);
      constructor() {
        super();
        this.head.weight = this.embed.weight;
        this.registerBuffer('table', zeros([2]));
        // biome-ignore lint/correctness/noConstructorReturn: Module returns a callable.
        return this;
      }
      forward(x: Tensor): Tensor {
        return this.head(this.embed(x));
      }
    }
    const model = withDevice('meta', () => new Tied());
    const { weight } = model.embed;
    const before = described(model);
    assert.equal(model.toEmpty({ device: 'cpu' }), model);
    assert.equal(model.embed.weight, weight);
    assert.equal(model.head.weight, weight);
    assert.deepEqual(described(model), before);
    for (const t of [...model.parameters(), ...model.buffers()]) assert.ok(t.isCpu);
    model.embed.resetParameters();
    assert.deepEqual(model.head.weight.tolist(), weight.tolist());
  });

  it('takes a device alone, leaves out modules below if asked, and clears gradients', () => {
    const inner = new nn.Linear(2, 2);
    const model = new nn.Sequential(inner);
    inner(ones([1, 2]))
      .sum()
      .backward();
    model.toEmpty({ device: 'meta', recurse: false });
    assert.ok(inner.weight.isCpu);
    model.toEmpty('meta');
    assert.ok(inner.weight.isMeta);
    assert.equal(inner.weight.grad, null);
  });

  it('refuses what is no device', () => {
    const model = new nn.Linear(2, 2);
    assert.throws(() => model.toEmpty(3 as never), /toEmpty: expected target to be a device/);
    assert.throws(() => model.toEmpty({ device: 'cpu', more: 1 } as never), /more/);
    assert.throws(() => model.toEmpty('nowhere' as never), DeviceError);
  });
});

describe('a module on meta', () => {
  it('refuses to move, naming the parameter and toEmpty, and changes its dtype', () => {
    const model = new nn.Sequential(new nn.Linear(2, 2, { device: 'meta' }));
    assert.throws(
      () => model.to('cpu'),
      /to: "0\.weight" is on meta .*toEmpty\(\{ device: 'cpu' \}\)/,
    );
    model.half();
    assert.deepEqual(
      [...model.parameters()].map((p) => p.dtype.name),
      ['float16', 'float16'],
    );
    assert.ok([...new nn.Linear(2, 2).to('meta').parameters()].every((p) => p.isMeta));
  });

  it('loads a state with assign, and refuses it without', () => {
    const model = withDevice('meta', () => new nn.Linear(2, 2));
    const given = new nn.Linear(2, 2).stateDict();
    assert.throws(
      () => model.loadStateDict(given),
      (error: Error) => error instanceof CheckpointError && /assign: true/.test(error.message),
    );
    model.loadStateDict(given, { assign: true });
    assert.deepEqual(model.weight.tolist(), given.weight?.tolist());
    assert.ok(model.weight.isSetTo(given.weight as Tensor) && model.weight.requiresGrad);
    assert.throws(
      () =>
        new nn.Linear(2, 2).loadStateDict(
          withDevice('meta', () => new nn.Linear(2, 2)).stateDict(),
        ),
      /the checkpoint is on meta/,
    );
  });

  it('is copied on meta, and after toEmpty where it is then', () => {
    for (const layer of [
      new nn.TransformerEncoderLayer(4, 2, { device: 'meta' }),
      withDevice('meta', () => new nn.TransformerEncoderLayer(4, 2)),
    ]) {
      const drawn = getRngState();
      assert.ok([...layer.copy().parameters()].every((p) => p.isMeta));
      assert.deepEqual(getRngState(), drawn);
      layer.toEmpty('cpu');
      for (const p of layer.parameters()) nn.init.constant_(p, 2);
      for (const p of layer.copy().parameters()) assert.deepEqual(p.unique().tolist(), [2]);
    }
  });

  it('is refused by saveSafetensors', () =>
    assert.rejects(
      saveSafetensors(
        path.join(tmpdir(), 'meta.safetensors'),
        new nn.Linear(2, 2, { device: 'meta' }).stateDict(),
      ),
      DeviceError,
    ));

  it('of billions of parameters takes no memory and draws nothing', () => {
    memory.collect();
    const [before, drawn] = [memory.stats().allocatedBytes, getRngState()];
    const model = withDevice(
      'meta',
      () =>
        new nn.Sequential(
          ...Array.from(
            { length: 32 },
            () => new nn.TransformerEncoderLayer(4096, 32, { dimFeedforward: 21504 }),
          ),
        ),
    );
    assert.ok([...model.parameters()].reduce((sum, p) => sum + p.numel(), 0) > 7e9);
    assert.ok(memory.stats().allocatedBytes <= before);
    assert.deepEqual(getRngState(), drawn);
  });
});
