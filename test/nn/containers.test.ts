/**
 * Containers, and the order of their members, which is the order of registration whatever the
 * names.
 */
import assert from 'node:assert/strict';
import { ArgumentError, nn, ones, type Tensor, tensor, zeros } from '../../lib/index.js';

/** x times 10 plus a digit: the result spells the order of calls. */
class Digit extends nn.Module {
  private readonly digit: number;
  constructor(digit: number) {
    super();
    this.digit = digit;
  }
  forward(x: Tensor): Tensor {
    return x.mul(10).add(this.digit);
  }
}
const spelled = (module: nn.Module): number => module(tensor([0])).item<number>();
const childNames = (module: nn.AnyModule): string[] =>
  [...module.namedChildren()].map(([name]) => name);
const parameterNames = (module: nn.AnyModule): string[] =>
  [...module.namedParameters()].map(([name]) => name);

describe('the members of containers', () => {
  it('run in a Sequential in the order of append, also after named modules', () => {
    const model = new nn.Sequential({ a: new Digit(1) })
      .append(new Digit(2))
      .extend([new Digit(3)]);
    assert.deepEqual(childNames(model), ['a', '1', '2']);
    assert.equal(spelled(model), 123);
    assert.equal(
      spelled(
        new nn.Sequential([model.at(-1), model.at(0)].map((m, i) => [String(9 - i), m] as const)),
      ),
      31,
    );
    assert.equal(spelled(new nn.Sequential(new Digit(1), new Digit(2)).append(new Digit(3))), 123);
  });

  it('keep the order of pairs in ModuleDict and ParameterDict if names are whole numbers', () => {
    const modules = new nn.ModuleDict([
      ['2', new Digit(2)],
      ['b', new Digit(0)],
      ['1', new Digit(1)],
    ]);
    assert.deepEqual(modules.keys(), ['2', 'b', '1']);
    modules
      .set('2', new Digit(5))
      .set('0', new Digit(0))
      .update({ a: new Digit(0) });
    assert.deepEqual(modules.keys(), ['2', 'b', '1', '0', 'a']);
    assert.equal(modules.values().length, 5);
    const parameters = new nn.ParameterDict(new Map([['7', tensor([7])]]))
      .set('x', tensor([1]))
      .set('3', tensor([3]));
    assert.deepEqual(parameters.keys(), ['7', 'x', '3']);
    assert.deepEqual(parameterNames(parameters), ['7', 'x', '3']);
  });

  it('come last if they are deleted and set again', () => {
    const modules = new nn.ModuleDict({ a: new Digit(0) })
      .set('1', new Digit(1))
      .set('0', new Digit(0));
    delete (modules as unknown as Record<string, unknown>)['a'];
    assert.deepEqual(modules.keys(), ['1', '0']);
    assert.deepEqual(modules.set('a', new Digit(2)).keys(), ['1', '0', 'a']);
  });

  it('have one order in state dicts, parameters and the printed form', () => {
    class Net extends nn.Module {
      first = new nn.Linear(1, 1, { bias: false });
      constructor() {
        super();
        this.registerModule('1', new nn.Linear(1, 1, { bias: false }));
        this.registerModule(
          '0',
          new nn.Sequential({ z: new nn.Linear(1, 1) }).append(new nn.PReLU()),
        );
        this.registerParameter('9', new nn.Parameter(tensor([9])));
        this.registerParameter('8', new nn.Parameter(tensor([8])));
      }
      last = new nn.ParameterList([tensor([1]), tensor([2])]);
      forward(x: Tensor): Tensor {
        return x;
      }
    }
    const net = new Net();
    const names = [
      'first.weight',
      'last.0',
      'last.1',
      '1.weight',
      '0.z.weight',
      '0.z.bias',
      '0.1.weight',
    ];
    assert.deepEqual(parameterNames(net), ['9', '8', ...names]);
    assert.deepEqual(
      Object.keys(net.stateDict()).filter((name) => name.includes('.')),
      names,
    );
    assert.match(
      String(net),
      /\(first\)[\s\S]*\(last\)[\s\S]*\(1\): Linear[\s\S]*\(0\): Sequential\(\s*\(z\)[\s\S]*\(1\): PReLU/,
    );
    net.loadStateDict(net.stateDict());
  });

  it('after an insertion move up by one', () => {
    const list = new nn.ModuleList([new Digit(1), new Digit(3)]).insert(1, new Digit(2));
    assert.equal(spelled(new nn.Sequential(...list)), 123);
    assert.deepEqual(childNames(list), ['0', '1', '2']);
  });

  it('of a wrong kind are refused', () => {
    const model = new nn.Sequential();
    assert.throws(() => model.registerModule('a', 3 as never), ArgumentError);
    assert.throws(
      () => new nn.Sequential(undefined as never),
      /registerModule: expected "0" to be a module, got undefined/,
    );
    assert.throws(
      () => model.registerParameter('a', tensor([1]) as never),
      /expected "a" to be an nn.Parameter or null, got a Tensor/,
    );
    assert.throws(() => model.registerBuffer('a', 1 as never), ArgumentError);
    assert.deepEqual([...model.buffers()], []);
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

class Plus extends nn.Module {
  private readonly amount: number;
  constructor(amount: number) {
    super();
    this.amount = amount;
  }
  forward(x: Tensor): Tensor {
    return x.add(this.amount);
  }
}

class Times extends nn.Module {
  forward(x: Tensor): Tensor {
    return x.mul(2);
  }
}

describe('members whose names are numbers', () => {
  it('run in a Sequential after those that were registered before', () => {
    const net = new nn.Sequential({ a: new Plus(100) }).append(new Times());
    assert.deepEqual(childNames(net), ['a', '1']);
    assert.equal(net(tensor(1)).item(), 202);
  });

  it('keep their order in dictionaries made from pairs, and in iterators over parameters', () => {
    const dict = new nn.ModuleDict([
      ['2', new nn.Linear(1, 1)],
      ['b', new nn.Linear(1, 1)],
      ['1', new nn.Linear(1, 1)],
    ]);
    dict.set('0', new nn.Linear(1, 1)).set('2', new nn.Linear(1, 1, { bias: false }));
    assert.deepEqual(dict.keys(), ['2', 'b', '1', '0']);
    assert.deepEqual(
      Object.keys(Object.fromEntries([...dict.namedParameters()].map(([n]) => [`_${n}`, 0]))),
      ['_2.weight', '_b.weight', '_b.bias', '_1.weight', '_1.bias', '_0.weight', '_0.bias'],
    );
    const parameters = new nn.ParameterDict(
      new Map([
        ['9', ones([1])],
        ['x', ones([1])],
        ['3', ones([1])],
      ]),
    );
    assert.deepEqual(parameters.keys(), ['9', 'x', '3']);
  });

  it('stay sorted in a list longer than ten', () => {
    const list = new nn.ModuleList(Array.from({ length: 12 }, (_, i) => new Plus(i)));
    assert.deepEqual(
      childNames(list),
      Array.from({ length: 12 }, (_, i) => String(i)),
    );
  });
});
