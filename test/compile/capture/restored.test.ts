/** A capture that ends with an error, at whichever op, leaves the program as it was. */
import assert from 'node:assert/strict';
import {
  compile,
  dropout,
  manualSeed,
  memory,
  nn,
  rand,
  type Tensor,
  tensor,
} from '../../../lib/index.js';
import { BACKENDS } from '../../seeds/compiled.js';

/** What a program can see of its tensors, its module and the random numbers. */
function stateOf(tensors: readonly Tensor[], model: Counting): unknown {
  return [
    tensors.map((t) => [
      t.tolist(),
      t.isFake,
      t.requiresGrad,
      t._version,
      t.gradFn === null,
      t.grad?.tolist() ?? null,
      t.untypedStorage().nbytes,
    ]),
    model.calls,
    model.training,
    [...model.buffers()].map((t) => [t.tolist(), t._version]),
  ];
}

class Counting extends nn.Module<[x: Tensor], Tensor> {
  calls = 0;
  readonly norm = new nn.BatchNorm1d(3);

  forward(x: Tensor): Tensor {
    this.calls++;
    return this.norm(x);
  }
}

/** Statements of a function; one that throws can come after any of them. */
const statements: ((
  v: { x: Tensor; w: Tensor; buffer: Tensor; h: Tensor },
  m: Counting,
) => void)[] = [
  (v) => (v.h = v.x.matmul(v.w)),
  (v) => (v.h = dropout(v.h)),
  (v) => v.buffer.add_(v.h.detach().sum({ dim: 0 })),
  (v, m) => (v.h = m(v.h)),
  (v) => (v.h = v.h.t()),
  (v) => v.h.registerHook((grad) => grad.mul(2)),
  (v) => v.buffer.data.mul_(3),
  (v) => (v.h = v.h.mul(tensor([2, 3]))),
  (v) => v.x.untypedStorage().resize_(0),
  (v) => (v.buffer.grad = v.buffer.mul(2)),
  (v) => (v.h = v.h.add(rand([1]))),
];

describe('an exception in a capture', () => {
  for (const backend of BACKENDS)
    it(`leaves everything as it was, after whichever op, with ${backend}`, () => {
      for (let at = 0; at <= statements.length; at++) {
        manualSeed(1);
        const model = new Counting();
        const [x, w, buffer] = [rand([2, 3]), rand([3, 3]).requiresGrad_(), rand([3])];
        let captured = 0;
        const fn = compile(
          (a: Tensor) => {
            captured++;
            const values = { x: a, w, buffer, h: a };
            for (const statement of statements.slice(0, at)) statement(values, model);
            throw new RangeError(`after ${at}`);
          },
          { backend, fullgraph: true },
        );
        manualSeed(2);
        const before = stateOf([x, w, buffer], model);
        assert.throws(() => fn(x), new RegExp(`after ${at}`));
        assert.equal(captured, 1);
        assert.deepEqual(stateOf([x, w, buffer], model), before, `after ${at}`);
        const next = rand([1]).item();
        manualSeed(2);
        assert.equal(rand([1]).item(), next, `after ${at}`);
        x.mul(w.sum()).add(buffer).sum().backward();
      }
      memory.collect();
    });
});
