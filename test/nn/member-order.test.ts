/** Members of modules come in the order in which they were added, whatever their names. */
import assert from 'node:assert/strict';
import { nn, ones, type Tensor, tensor } from '../../lib/index.js';

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
const names = (module: nn.AnyModule): string[] => [...module.namedChildren()].map(([name]) => name);

describe('members whose names are numbers', () => {
  it('run in a Sequential after those that were registered before', () => {
    const net = new nn.Sequential({ a: new Plus(100) }).append(new Times());
    assert.deepEqual(names(net), ['a', '1']);
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
      names(list),
      Array.from({ length: 12 }, (_, i) => String(i)),
    );
  });
});
