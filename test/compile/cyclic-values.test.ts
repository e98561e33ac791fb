/** Arguments and results that contain themselves run uncompiled, and `explain` says why. */
import assert from 'node:assert/strict';
import {
  ArgumentError,
  CompileError,
  compile,
  compiler,
  nn,
  ones,
  type Tensor,
} from '../../lib/index.js';

interface Ring {
  readonly t: Tensor;
  next: Ring;
}

function ringOf(t: Tensor): Ring {
  const ring = { t } as Ring;
  ring.next = ring;
  return ring;
}

/** Values that contain themselves, and the way to their tensor. */
const KINDS: Record<string, readonly [(t: Tensor) => unknown, (value: never) => Tensor]> = {
  'an object': [ringOf, (ring: Ring) => ring.next.next.t],
  'an array': [
    (t) => {
      const list: unknown[] = [t];
      list.push(list);
      return list;
    },
    (list: [Tensor, [Tensor]]) => list[1][0],
  ],
  'a Map': [
    (t) => {
      const map = new Map<string, unknown>([['t', t]]);
      return map.set('self', [map]);
    },
    (map: Map<string, never>) => (map.get('self') as unknown as [typeof map])[0].get('t') as never,
  ],
};

describe('a compiled function and', () => {
  for (const [kind, [make, tensorOf]] of Object.entries(KINDS)) {
    it(`${kind} that contains itself as an argument: runs as uncompiled, and says why`, () => {
      const explained = compiler.explain((value: unknown) => tensorOf(value as never).mul(2));
      for (let i = 1; i <= 3; i++) {
        const { result: output, breaks } = explained(make(ones([1]).mul(i)));
        assert.equal((output as Tensor).item(), 2 * i);
        assert.deepEqual(
          breaks.map(({ reason }) =>
            /was called with an argument that contains itself/.test(reason),
          ),
          [true],
        );
      }
    });

    it(`${kind} that contains itself as a result: runs as uncompiled, and says why`, () => {
      const explained = compiler.explain((t: Tensor) => make(t.mul(2)));
      for (let i = 1; i <= 3; i++) {
        const { result: output, breaks } = explained(ones([1]).mul(i));
        assert.equal(tensorOf(output as never).item(), 2 * i);
        assert.ok(breaks.some(({ reason }) => /a result that contains itself/.test(reason)));
      }
    });

    it(`${kind} that contains itself are refused with fullgraph`, () => {
      const taking = compile((value: unknown) => tensorOf(value as never), { fullgraph: true });
      const returning = compile((t: Tensor) => make(t.mul(2)), { fullgraph: true });
      assert.throws(() => taking(make(ones([1]))), CompileError);
      assert.throws(() => returning(ones([1])), CompileError);
    });
  }

  it('a module that gets such an argument compiles the layers in it', () => {
    class Model extends nn.Module<[ring: Ring], Tensor> {
      readonly layer = new nn.Linear(2, 2);
      override forward(ring: Ring): Tensor {
        return this.layer(ring.next.t).relu();
      }
    }
    const model = new Model();
    const explained = compiler.explain(model);
    const { result: output, graphs } = explained(ringOf(ones([1, 2])));
    assert.deepEqual((output as Tensor).tolist(), model(ringOf(ones([1, 2]))).tolist());
    assert.ok(graphs.some(({ functionName }) => functionName === 'Linear'));
  });

  it('an argument of too many levels is an error', () => {
    let deep: unknown = ones([1]);
    for (let i = 0; i < 1_100; i++) deep = [deep];
    assert.throws(() => compile((value: unknown) => [value])(deep), ArgumentError);
  });
});
