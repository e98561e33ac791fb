/** The tree of a module: registration, lookup, state, hooks, printing. */
import assert from 'node:assert/strict';
import {
  ArgumentError,
  CheckpointError,
  eye,
  nn,
  noGrad,
  ones,
  ShapeError,
  type Tensor,
  tensor,
  zeros,
} from '../../lib/index.js';

class Net extends nn.Module {
  fc = new nn.Linear(2, 3);
  act = new nn.ReLU();
  constructor() {
    super();
    this.registerBuffer('scale', tensor([2]));
    this.registerBuffer('scratch', tensor([0]), { persistent: false });
  }
  forward(x: Tensor): Tensor {
    return this.act(this.fc(x));
  }
}

describe('nn.Module', () => {
  it('finds children, parameters and buffers by path', () => {
    const net = new Net();
    assert.deepEqual(
      [...net.namedChildren()].map(([name]) => name),
      ['fc', 'act'],
    );
    assert.deepEqual(
      [...net.namedParameters()].map(([name]) => name),
      ['fc.weight', 'fc.bias'],
    );
    assert.deepEqual(
      [...net.namedBuffers()].map(([name]) => name),
      ['scale', 'scratch'],
    );
    assert.equal(net.getParameter('fc.weight'), net.fc.weight);
    assert.equal(net.getBuffer('scale').item(), 2);
    assert.deepEqual(net.getSubmodule('fc')(ones([1, 2])).shape, [1, 3]);
    assert.throws(() => net.getSubmodule('none'), ArgumentError);
    assert.throws(() => net.getBuffer('fc.weight'), ArgumentError);
    assert.deepEqual([...new nn.Sequential(net).buffers({ recurse: false })], []);
  });

  it('refuses names that are taken or contain a dot', () => {
    const net = new Net();
    assert.throws(() => net.registerBuffer('a.b', null), ArgumentError);
    assert.throws(() => net.registerModule('forward', new nn.Identity()), /member of Net/);
    net.addModule('extra', new nn.Identity());
    assert.equal([...net.children()].length, 3);
  });

  it('keeps non-persistent buffers out of its state, and lists what does not fit with shapes', () => {
    const net = new Net();
    assert.deepEqual(Object.keys(net.stateDict({ prefix: 'net.' })), [
      'net.scale',
      'net.fc.weight',
      'net.fc.bias',
    ]);
    assert.equal(net.stateDict({ keepVars: true })['fc.weight'], net.fc.weight);
    const state = { ...net.stateDict(), 'fc.bias': zeros([4]), more: zeros([1, 2]) };
    delete (state as Record<string, Tensor>)['scale'];
    assert.throws(
      () => net.loadStateDict(state),
      (error: Error) => {
        assert.ok(error instanceof CheckpointError);
        assert.match(error.message, /missing: scale \[1\]/);
        assert.match(error.message, /unexpected: more \[1, 2\]/);
        assert.match(error.message, /fc.bias: the checkpoint has shape \[4\], the module \[3\]/);
        return true;
      },
    );
    const good = { 'fc.weight': ones([3, 2]), more: zeros([1]) };
    assert.deepEqual(net.loadStateDict(good, { strict: false }), {
      missingKeys: ['scale', 'fc.bias'],
      unexpectedKeys: ['more'],
    });
    assert.equal(net.fc.weight.sum().item(), 6);
  });

  it('converts, freezes and clears', () => {
    const net = new Net().bfloat16();
    assert.equal(net.fc.weight.dtype.name, 'bfloat16');
    net.float().requiresGrad_(false);
    assert.equal(net.fc.weight.requiresGrad, false);
    net.requiresGrad_();
    net(ones([1, 2]))
      .sum()
      .backward();
    net.zeroGrad();
    assert.equal(net.fc.weight.grad, null);
  });

  it('runs prepended hooks first', () => {
    const net = new Net();
    const order: string[] = [];
    net.registerForwardPreHook(() => void order.push('second'));
    net.registerForwardPreHook(() => void order.push('first'), { prepend: true });
    net(ones([1, 2]));
    assert.deepEqual(order, ['first', 'second']);
  });

  it('accepts modules of any arguments where any module is allowed', () => {
    const any: nn.AnyModule[] = [
      new nn.CrossEntropyLoss(),
      new nn.MultiheadAttention(4, 2),
      new nn.ModuleList([new nn.Linear(1, 1)]),
    ];
    assert.equal(any.length, 3);
    let count = 0;
    new nn.Sequential(new Net()).apply((m) => {
      if (m instanceof nn.Linear) count += m.outFeatures;
    });
    assert.equal(count, 3);
  });

  it('prints as PyTorch does', () => {
    const model = new nn.Sequential(
      new nn.Linear(2, 3),
      new nn.ReLU({ inplace: true }),
      new nn.LeakyReLU(0.2),
      new nn.Embedding(5, 2, { paddingIdx: -1 }),
    );
    assert.equal(
      String(model),
      `Sequential(
  (0): Linear(inFeatures=2, outFeatures=3, bias=true)
  (1): ReLU(inplace=true)
  (2): LeakyReLU(negativeSlope=0.2)
  (3): Embedding(5, 2, paddingIdx=4)
)`,
    );
    assert.equal(
      String(new nn.ModuleList([new nn.Tanh(), new nn.Tanh(), new nn.GELU()])),
      "ModuleList(\n  (0-1): 2 x Tanh()\n  (2): GELU(approximate='none')\n)",
    );
    assert.equal(
      String(new nn.ParameterList([ones([2, 3])])),
      'ParameterList((0): Parameter containing: [float32 of size 2x3])',
    );
  });
});

describe('nn containers', () => {
  it('ParameterList and ParameterDict hold parameters', () => {
    const list = new nn.ParameterList([ones([1])]).append(zeros([2]));
    assert.equal(list.length, 2);
    assert.deepEqual(list.at(-1).shape, [2]);
    assert.deepEqual(
      [...list].map((p) => p.requiresGrad),
      [true, true],
    );
    const dict = new nn.ParameterDict({ a: ones([1]) }).set('b', zeros([2]));
    assert.deepEqual(dict.keys(), ['a', 'b']);
    assert.equal(dict.has('c'), false);
    assert.deepEqual([...dict.parameters()].length, 2);
    assert.throws(() => dict.get('c'), ArgumentError);
    assert.throws(() => list.at(2), ArgumentError);
  });

  it('Sequential accepts names, ModuleList inserts, and ModuleDict lists', () => {
    const named = new nn.Sequential({ first: new nn.Identity(), second: new nn.ReLU() });
    assert.deepEqual(
      [...named.namedChildren()].map(([name]) => name),
      ['first', 'second'],
    );
    assert.equal(named(tensor([-1])).item(), 0);
    const list = new nn.ModuleList<nn.Module>([new nn.ReLU(), new nn.Tanh()]).insert(
      1,
      new nn.Identity(),
    );
    assert.deepEqual(
      [...list].map((m) => m.constructor.name),
      ['ReLU', 'Identity', 'Tanh'],
    );
    const dict = new nn.ModuleDict({ a: new nn.ReLU() });
    assert.deepEqual([dict.keys(), dict.has('a'), dict.values().length], [['a'], true, 1]);
  });
});

describe('nn layers', () => {
  it('Embedding.fromPretrained freezes its table, and paddingIdx gets no gradient', () => {
    const table = Object.assign(nn.Embedding.fromPretrained(ones([3, 2])), {});
    assert.equal(table.weight.requiresGrad, false);
    const layer = new nn.Embedding(3, 2, { paddingIdx: -1 });
    assert.deepEqual(layer.weight.select(0, 2).tolist(), [0, 0]);
    layer(tensor([0, 2]).long())
      .sum()
      .backward();
    assert.deepEqual(layer.weight.grad?.tolist(), [
      [1, 1],
      [0, 0],
      [0, 0],
    ]);
    assert.throws(() => new nn.Embedding(3, 2, { paddingIdx: 3 }), ArgumentError);
  });

  it('in-place activations change their input', () => {
    const x = tensor([-1, 2]);
    assert.equal(new nn.ReLU({ inplace: true })(x), x);
    assert.deepEqual(x.tolist(), [0, 2]);
    assert.deepEqual(new nn.LeakyReLU(0.5, { inplace: true })(tensor([-2])).tolist(), [-1]);
  });

  it('GroupNorm of one group equals LayerNorm over channels and positions', () => {
    const x = ones([2, 4, 3])
      .cumsum(1)
      .add(ones([2, 4, 3]).cumsum(2).mul(2));
    const layer = new nn.GroupNorm(1, 4);
    assert.ok(layer(x).allclose(x.reshape(2, 12).layerNorm([12]).reshape(2, 4, 3), { atol: 1e-6 }));
    assert.throws(() => new nn.GroupNorm(3, 4), ArgumentError);
  });

  it('BatchNorm1d normalises by the batch in training and by running statistics in evaluation', () => {
    const layer = new nn.BatchNorm1d(1);
    const out = layer(tensor([[1], [3]]));
    out
      .reshape(-1)
      .toTypedArray()
      .forEach((v, i) => assert.ok(Math.abs(Number(v) - (i === 0 ? -1 : 1)) < 1e-4));
    assert.ok(Math.abs((layer.running_mean as Tensor).item() - 0.2) < 1e-6);
    assert.ok(Math.abs((layer.running_var as Tensor).item() - (0.9 + 0.1 * 2)) < 1e-6);
    assert.equal((layer.num_batches_tracked as Tensor).item(), 1);
    assert.ok(
      Math.abs(
        layer
          .eval()(tensor([[0.2]]))
          .item(),
      ) < 1e-6,
    );
    assert.deepEqual(Object.keys(layer.stateDict()), [
      'weight',
      'bias',
      'running_mean',
      'running_var',
      'num_batches_tracked',
    ]);
    assert.throws(() => layer.train()(tensor([[1]])), ArgumentError);
  });

  it('loss modules equal the functions of their names', () => {
    const [x, y] = [tensor([[0.3, -1]]), tensor([[1, 0]])];
    assert.equal(
      new nn.L1Loss({ reduction: 'sum' })(x, y).item(),
      x.l1Loss(y, { reduction: 'sum' }).item(),
    );
    assert.equal(
      new nn.BCEWithLogitsLoss({ posWeight: tensor([2, 2]) })(x, y).item(),
      nn.functional.binaryCrossEntropyWithLogits(x, y, { posWeight: tensor([2, 2]) }).item(),
    );
    assert.ok(
      new nn.NLLLoss()(x.logSoftmax(1), tensor([1]).long()).allclose(
        new nn.CrossEntropyLoss()(x, tensor([1]).long()),
      ),
    );
    assert.equal(
      new nn.SmoothL1Loss({ beta: 0.5 })(x, y).item(),
      nn.functional.smoothL1Loss(x, y, { beta: 0.5 }).item(),
    );
  });

  it('Flatten and Unflatten reshape', () => {
    assert.deepEqual(new nn.Flatten()(zeros([2, 3, 4])).shape, [2, 12]);
    assert.deepEqual(new nn.Unflatten(1, [3, -1])(zeros([2, 12])).shape, [2, 3, 4]);
    assert.deepEqual(new nn.Bilinear(2, 3, 4)(zeros([5, 2]), zeros([5, 3])).shape, [5, 4]);
  });
});

describe('nn.utils', () => {
  it('accepts one parameter or many', () => {
    const p = new nn.Parameter(ones([2]));
    p.mul(3).sum().backward();
    assert.ok(Math.abs(nn.utils.clipGradNorm_(p, 1).item() - Math.hypot(3, 3)) < 1e-5);
    nn.utils.clipGradValue_(p, 0.1);
    assert.ok(Math.abs((p.grad as Tensor).amax().item() - 0.1) < 1e-6);
    assert.equal(nn.utils.clipGradNorm_([], 1).item(), 0);
  });

  it('writes parameters to a vector and back', () => {
    const layer = new nn.Linear(2, 1);
    const vector = nn.utils.parametersToVector(layer.parameters());
    noGrad(() => nn.utils.vectorToParameters(vector.mul(0).add(4), layer.parameters()));
    assert.deepEqual(layer.weight.tolist(), [[4, 4]]);
    assert.throws(() => nn.utils.vectorToParameters(zeros([9]), layer.parameters()), ShapeError);
  });

  it('pads sequences', () => {
    assert.deepEqual(
      nn.utils.rnn
        .padSequence([tensor([1, 2]), tensor([3])], { batchFirst: true, paddingValue: -1 })
        .tolist(),
      [
        [1, 2],
        [3, -1],
      ],
    );
    assert.deepEqual(nn.utils.rnn.padSequence([ones([2, 3]), ones([1, 3])]).shape, [2, 2, 3]);
  });
});

describe('nn.init.orthogonal_', () => {
  it('makes rows or columns orthogonal, of length gain', () => {
    const wide = nn.init.orthogonal_(zeros([2, 5]), { gain: 2 });
    assert.ok(wide.mm(wide.t()).allclose(eye(2).mul(4), { atol: 1e-5 }));
    const tall = nn.init.orthogonal_(zeros([5, 2]));
    assert.ok(tall.t().mm(tall).allclose(eye(2), { atol: 1e-5 }));
    assert.throws(() => nn.init.orthogonal_(zeros([3])), ShapeError);
  });
});
