/** The base class of modules: registration, lookup, state, hooks, printing. */
import assert from 'node:assert/strict';
import {
  ArgumentError,
  CheckpointError,
  nn,
  ones,
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
  it('gives walks over members that can be walked many times, each over the module as it is', () => {
    const net = new Net();
    const walks = [net.parameters(), net.namedModules(), net.children(), net.buffers()];
    const counts = (): number[] => walks.map((walk) => [...walk].length);
    assert.deepEqual(counts(), [2, 3, 2, 2]);
    net.fc.registerParameter('more', new nn.Parameter(ones([1])));
    assert.deepEqual(counts(), [3, 3, 2, 2]);
  });

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
