/** A function that assigns to private fields, or whose hooks assign to variables, runs uncompiled. */
import assert from 'node:assert/strict';
import { CompileError, compile, nn, ones, type Tensor, tensor } from '../../../lib/index.js';
import { CompileCounter } from '../../../lib/testing/index.js';

class Counting extends nn.Module<[x: Tensor], Tensor> {
  #calls = 0;
  override forward(x: Tensor): Tensor {
    this.#calls++;
    return x.mul(this.#calls);
  }
}

class Accumulating extends nn.Module<[x: Tensor], Tensor> {
  #sum: Tensor | null = null;
  override forward(x: Tensor): Tensor {
    this.#sum = this.#sum === null ? x : this.#sum.add(x);
    return this.#sum.mul(1);
  }
}

class Ticket {
  #number = 0;
  take(): number {
    return ++this.#number;
  }
}

class Scaled extends nn.Module<[x: Tensor], Tensor> {
  readonly #scale: number;
  constructor() {
    super();
    this.#scale = 3;
  }
  override forward(x: Tensor): Tensor {
    return x.mul(this.#scale);
  }
}

const threeCalls = (fn: (x: Tensor) => Tensor): unknown[] =>
  [1, 2, 3].map(() => fn(tensor([1])).tolist());

describe('a compiled function runs as uncompiled that', () => {
  it('is a module that counts in a private field', () => {
    assert.deepEqual(threeCalls(compile(new Counting())), [[1], [2], [3]]);
  });

  it('calls modules that count in private fields', () => {
    const model = new nn.Sequential(new Counting(), new Counting());
    const called = new Counting();
    const fn = compile((x: Tensor) => called(model(x) as Tensor));
    assert.deepEqual(threeCalls(fn), [[1], [8], [27]]);
  });

  it('keeps a tensor in a private field', () => {
    assert.deepEqual(threeCalls(compile(new Accumulating())), [[1], [2], [3]]);
  });

  it('calls a method that counts in a private field', () => {
    const ticket = new Ticket();
    assert.deepEqual(threeCalls(compile((x: Tensor) => x.mul(ticket.take()))), [[1], [2], [3]]);
  });

  it('registers a hook that counts', () => {
    const p = ones([2]).requiresGrad_();
    let count = 0;
    const compiled = compile((x: Tensor) => {
      const h = x.mul(2);
      h.registerHook((g) => {
        count++;
        return g.mul(5);
      });
      return h.mul(3);
    });
    for (let i = 0; i < 3; i++) compiled(p).sum().backward();
    assert.equal(count, 3);
    assert.deepEqual(p.grad?.tolist(), [90, 90]);
  });
});

describe('a private field that only the constructor assigns to', () => {
  it('lets its module be captured at the second call', () => {
    const backend = CompileCounter();
    assert.deepEqual(threeCalls(compile(new Scaled(), { backend })), [[3], [3], [3]]);
    assert.equal(backend.frameCount, 2); // a segment of the first call, and the graph
  });
});

describe('with fullgraph, an assignment to a private field', () => {
  it('is refused', () => {
    assert.throws(() => compile(new Counting(), { fullgraph: true })(tensor([1])), CompileError);
  });
});
