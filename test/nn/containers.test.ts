/**
 * Containers, and the order of members: that of registration, as in PyTorch, whatever the names.
 */
import assert from 'node:assert/strict';
import { ArgumentError, nn, type Tensor, tensor } from '../../lib/index.js';

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
