/**
 * Every composition in the list has correct gradients, methods, in-place methods and fake shapes on
 * its samples.
 */
import assert from 'node:assert/strict';
import { FakeTensorMode } from '../../lib/compile/index.js';
import { autograd, float64, Tensor } from '../../lib/index.js';
import { allComposites, type Composite } from '../../lib/ops/composite.js';
import { stepped, transposed } from './differentiable.js';

type Method = (...args: unknown[]) => unknown;

/** All tensors of a result, at any depth. */
function tensorsOf(value: unknown): Tensor[] {
  if (value instanceof Tensor) return [value];
  return typeof value === 'object' && value !== null ? Object.values(value).flatMap(tensorsOf) : [];
}

/** The arguments with each tensor replaced. */
function replaced(args: readonly unknown[], replace: (t: Tensor) => Tensor): unknown[] {
  return args.map((a) => (a instanceof Tensor ? replace(a) : a));
}

function assertSame(a: unknown, b: unknown): void {
  const [x, y] = [tensorsOf(a), tensorsOf(b)];
  assert.equal(x.length, y.length);
  if (x.length === 0) assert.deepEqual(a, b);
  x.forEach((t, i) =>
    assert.ok(t.isSameSize(y[i] as Tensor) && t.allclose(y[i] as Tensor, { equalNan: true })),
  );
}

function checkGradient({ fn }: Composite, args: readonly unknown[]): void {
  const given = replaced(args, (t) =>
    t.dtype.isFloatingPoint ? t.detach().to(float64).requiresGrad_() : t,
  );
  const leaves = given.filter((a): a is Tensor => a instanceof Tensor && a.requiresGrad);
  const run = (...inputs: Tensor[]): Tensor[] => {
    let next = 0;
    return tensorsOf(
      fn(...given.map((a) => (a instanceof Tensor && a.requiresGrad ? inputs[next++] : a))),
    ).filter((t) => t.dtype.isFloatingPoint);
  };
  if (!run(...leaves).some((t) => t.requiresGrad)) return;
  assert.ok(autograd.gradcheck(run, leaves));
  assert.ok(autograd.gradgradcheck(run, leaves));
}

/** Checks that values and gradients do not depend on the layout of arguments. */
function checkLayouts({ name, fn }: Composite, args: readonly unknown[]): void {
  const run = (arrange: (t: Tensor) => Tensor): (Tensor | null)[] => {
    const given = replaced(args, (t) =>
      t.dtype.isFloatingPoint
        ? arrange(t.detach().to(float64)).detach().requiresGrad_()
        : arrange(t),
    );
    const outputs = tensorsOf(fn(...given));
    const leaves = given.filter((a): a is Tensor => a instanceof Tensor && a.requiresGrad);
    const losses = outputs.filter((t) => t.requiresGrad).map((t) => t.sin().sum());
    return [
      ...outputs,
      ...(losses.length === 0 ? [] : autograd.grad(losses, leaves, { allowUnused: true })),
    ];
  };
  const expected = run((t) => t.contiguous());
  for (const layout of [transposed, stepped]) {
    // It is a view, so it refuses other layouts.
    if (name === 'viewAs') continue;
    run(layout).forEach((t, i) => {
      const other = expected[i] as Tensor | null;
      assert.ok(
        t === null || other === null
          ? t === other
          : t.allclose(other, { rtol: 1e-12, atol: 1e-12, equalNan: true }),
        `${layout.name} arguments, result ${i}`,
      );
    });
  }
}

function call(name: string, target: Tensor, rest: readonly unknown[]): unknown {
  return ((target as unknown as Record<string, Method>)[name] as Method).call(target, ...rest);
}

function checkTwin({ name, fn }: Composite, [input, ...rest]: readonly unknown[]): void {
  const before = input as Tensor;
  const target = before.clone();
  assert.equal(call(`${name}_`, target, rest), target);
  assertSame(target, fn(before, ...rest));
  // The graph contains the in-place change.
  const exact = replaced(rest, (t) => (t.dtype.isFloatingPoint ? t.to(float64) : t));
  assert.ok(
    autograd.gradcheck(
      (t) => call(`${name}_`, t.mul(1), exact) as Tensor,
      [before.detach().to(float64).requiresGrad_()],
    ),
  );
}

describe('every composition', () => {
  for (const composite of allComposites()) {
    const { name, fn, method, inPlace, readsValues } = composite;
    it(`has a correct gradient, method${inPlace ? ', in-place form' : ''}${readsValues ? '' : ', fake shape'}: ${name}`, function () {
      this.timeout(60_000);
      for (const args of composite.samples()) {
        checkGradient(composite, args);
        checkLayouts(composite, args);
        const [input, ...rest] = args as [Tensor, ...unknown[]];
        if (method) assertSame(call(name, input, rest), fn(...args));
        if (inPlace) checkTwin(composite, args);
        if (readsValues) continue;
        const real = tensorsOf(fn(...args)).map((t) => [t.shape, t.dtype]);
        const mode = new FakeTensorMode();
        const fake = mode.run(() =>
          tensorsOf(fn(...replaced(args, (t) => mode.fromTensor(t)))).map((t) => [
            t.shape,
            t.dtype,
          ]),
        );
        assert.deepEqual(fake, real);
      }
    });
  }
});
