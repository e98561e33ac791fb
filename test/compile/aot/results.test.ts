/**
 * Results and arguments of lowered graphs are those of the function: objects, histories, versions.
 */
import assert from 'node:assert/strict';
import { compile, enableGrad, noGrad, type Tensor, tensor } from '../../../lib/index.js';

const BACKENDS = ['aot_eager', 'aot_eager_decomp_partition', 'inductor'] as const;
const leaf = (call: number): Tensor => tensor([1.5 + call, -2.5], { requiresGrad: true });

/** Runs the function eagerly and compiled, three times each, and compares what is observed. */
function assertSame(
  fn: (w: Tensor) => Tensor[],
  observe: (results: Tensor[], w: Tensor) => unknown,
  call: <T>(run: () => T) => T = (run) => run(),
): void {
  for (const backend of BACKENDS) {
    const compiled = compile(fn, { backend, fullgraph: true });
    for (let i = 0; i < 3; i++) {
      const [expected, seen] = [fn, compiled].map((run) => {
        const w = leaf(i);
        const results = call(() => run(w));
        return [results.map((t) => [t.tolist(), t.requiresGrad]), observe(results, w)];
      });
      assert.deepEqual(seen, expected, `${backend}, call ${i}`);
    }
  }
}

describe('a lowered graph', () => {
  it('returns one object for a view of an argument that is two results', () => {
    assertSame(
      (w) => {
        const view = w.detach().view([2, 1]);
        return [view, view];
      },
      ([first, second]) => first === second,
    );
  });

  it('does not count changes of data as changes of the argument', () => {
    assertSame(
      (w) => {
        const y = w.sin();
        w.data.mul_(2);
        return [y];
      },
      ([y], w) => {
        const version = w._version;
        y?.sum().backward();
        return [version, w.tolist(), w.grad?.tolist()];
      },
    );
  });

  it('gives a detached view of an argument the history of its changes', () => {
    assertSame(
      (w) => {
        const view = w.mul(1).detach();
        view.sub_(w);
        const own = w.detach();
        return [view, own];
      },
      ([view], w) => {
        view?.sum().backward();
        return w.grad?.tolist();
      },
    );
    assertSame(
      (w) => {
        const view = w.detach();
        view.mul_(w);
        return [view];
      },
      ([view]) => view?.gradFn !== null,
    );
  });

  it('returns what it assigns as a gradient, which stays when that is replaced', () => {
    assertSame(
      (w) => {
        const grad = w.detach().mul(2);
        w.grad = grad;
        return [grad];
      },
      ([grad], w) => {
        w.grad = null;
        return grad?.tolist();
      },
    );
  });

  it('keeps the hook of a view of an argument that is a result', () => {
    assertSame(
      (w) => {
        const view = w.narrow(0, 1, 1);
        view.registerHook((g) => g.mul(view.detach()));
        return [view];
      },
      ([view], w) => {
        view?.sum().backward();
        return w.grad?.tolist();
      },
    );
  });

  it('records a history where the function enables gradients', () => {
    assertSame(
      (w) => [noGrad(() => enableGrad(() => w.mul(3)))],
      ([y], w) => {
        y?.sum().backward();
        return w.grad?.tolist();
      },
      noGrad,
    );
  });

  it('gives a view that changed under noGrad the history of its base', () => {
    const row = (c: Tensor): Tensor[] => {
      const part = c.narrow(0, 0, 1);
      part.add_(1);
      return [part];
    };
    const onInner = (w: Tensor, run: (c: Tensor) => Tensor[]): Tensor[] => {
      const c = w.mul(1);
      return noGrad(() => run(c));
    };
    for (const backend of BACKENDS) {
      const compiled = compile(row, { backend });
      for (let i = 0; i < 3; i++) {
        const [expected, seen] = [row, compiled].map((run) =>
          onInner(leaf(i), run).map((t) => [t.tolist(), t.requiresGrad]),
        );
        assert.deepEqual(seen, expected);
      }
    }
  });

  it('changes a result through a detached view', () => {
    assertSame(
      (w) => {
        const y = w.mul(3);
        y.detach().clamp_(-1, 1);
        return [y];
      },
      ([y], w) => {
        y?.sum().backward();
        return w.grad?.tolist();
      },
    );
  });
});
