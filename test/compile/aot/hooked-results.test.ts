/**
 * Hooks that a function registers on tensors that its caller has: they run before those that the
 * caller registers, on all of the gradient, as uncompiled.
 */
import { noGrad, type Tensor } from '../../../lib/index.js';
import { assertSame, type Fn, leaves, list, used } from './observed-results.js';

/** Arguments that are no leaves, whose gradients are kept. */
const inner = (): Tensor[] =>
  leaves().map((leaf) => {
    const t = leaf.mul(1.5);
    t.retainGrad();
    return t;
  });

const hooked: Fn = (x, y) => {
  const h = x.mul(3);
  h.registerHook((g) => g.mul(y.detach()));
  return [h];
};

describe('a hook that a compiled function registers on its result', () => {
  it('runs before a hook of the caller', () => {
    assertSame(hooked, (results) => {
      results[0]?.registerHook((g) => g.add(1));
      used(results, 0).backward();
    });
  });

  it('runs before the gradient is kept, by whomever', () => {
    const keeping: Fn = (x, y) => {
      const [h] = hooked(x, y) as [Tensor];
      h.retainGrad();
      return [h];
    };
    for (const fn of [hooked, keeping])
      assertSame(fn, (results) => {
        if (fn === hooked) results[0]?.retainGrad();
        used(results, 0).backward();
        return list(results[0]?.grad);
      });
  });

  it('sees the values that the caller gives the result', () => {
    const fn: Fn = (x, y) => {
      const h = x.atan2(y);
      h.registerHook((g) => g.mul(h.detach()));
      return [h];
    };
    assertSame(fn, (results) => {
      noGrad(() => results[0]?.mul_(4));
      used(results, 0).backward();
    });
  });

  it('runs first on one of several results, and on what others are computed from', () => {
    const several: Fn = (x, y) => {
      const [h] = hooked(x, y) as [Tensor];
      return [h, h.sin(), x.mul(y), h.view([2, 1])];
    };
    for (const at of [[0, 1, 2, 3], [0], [1, 3]])
      assertSame(several, (results) => {
        results[0]?.registerHook((g) => g.add(1));
        used(results, ...at).backward();
      });
  });
});

describe('a hook that a compiled function registers on an argument with a history', () => {
  const onArgument: Fn = (x, y) => {
    x.registerHook((g) => g.mul(y.detach()));
    return [x.sin()];
  };

  it('gets what arrives from other code, too', () => {
    assertSame(
      onArgument,
      (results, [x]) => {
        used(results, 0)
          .add((x as Tensor).mul(3).sum())
          .backward();
      },
      inner,
    );
  });

  it('runs in turn with hooks from before and after the call', () => {
    const earlier = (): Tensor[] => {
      const args = inner();
      args[0]?.registerHook((g) => g.add(1));
      return args;
    };
    assertSame(
      onArgument,
      (results, [x]) => {
        x?.registerHook((g) => g.sin());
        used(results, 0).backward();
      },
      earlier,
    );
  });

  it('runs where the argument is a result, or was changed', () => {
    const changing: Fn = (x, y) => {
      x.mul_(2);
      x.registerHook((g) => g.mul(y.detach()));
      return [y.sin()];
    };
    const returning: Fn = (x, y) => {
      x.registerHook((g) => g.mul(y.detach()));
      return [x, x.sin()];
    };
    for (const fn of [changing, returning])
      assertSame(
        fn,
        (results, [x]) => {
          x?.registerHook((g) => g.add(1));
          const all = used(results, ...results.keys());
          all.add((x as Tensor).mul(3).sum()).backward();
        },
        inner,
      );
  });
});
