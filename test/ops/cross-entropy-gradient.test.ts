/**
 * crossEntropy computes its gradient in forward. The result equals the usual gradient for every
 * manner of asking for it.
 */
import assert from 'node:assert/strict';
import {
  autograd,
  bfloat16,
  type CrossEntropyOptions,
  crossEntropy,
  type DType,
  float16,
  float32,
  float64,
  memory,
  nn,
  noGrad,
  rand,
  randint,
  randn,
  scope,
  type Tensor,
  tensor,
} from '../../lib/index.js';

const [ROWS, CLASSES, IGNORED] = [7, 19, 3];
type Options = CrossEntropyOptions;

const targets = (): Tensor => randint(0, CLASSES, [ROWS]);
const leaf = (dtype: DType = float64): Tensor => randn([ROWS, CLASSES]).to(dtype).requiresGrad_();

/** The same loss from unreduced losses, which compute no gradient in forward. */
function byRows(
  logits: Tensor,
  target: Tensor,
  { reduction = 'mean', ...options }: NonNullable<Options>,
): Tensor {
  const { weight = null, ignoreIndex = -100 } = options;
  const sum = crossEntropy(logits, target, { ...options, reduction: 'none' }).sum();
  if (reduction === 'sum') return sum;
  const counts = target.ne(ignoreIndex).to(logits.dtype);
  return sum.div((weight === null ? counts : counts.mul(weight.indexSelect(0, target))).sum());
}

function assertClose(
  actual: Tensor | null | undefined,
  expected: Tensor | null | undefined,
  what: string,
): void {
  const low = (expected as Tensor).dtype !== float64;
  assert.ok(
    actual?.allclose(
      expected as Tensor,
      low ? { rtol: 1.6e-2, atol: 1e-5 } : { rtol: 1e-12, atol: 1e-14 },
    ),
    `${what}: ${actual}\n${expected}`,
  );
}

const gradientNode = (loss: Tensor): string => {
  const names: string[] = [];
  const walk = (
    node: { name: string; edges: readonly ({ node: never } | null)[] } | null,
  ): void => {
    if (node === null) return;
    names.push(node.name);
    for (const edge of node.edges) if (edge !== null) walk(edge.node);
  };
  walk(loss.gradFn as never);
  return names.join(' ');
};

describe('crossEntropy with its gradient computed in forward', () => {
  const weight = rand([CLASSES], { dtype: float64 }).add(0.5);
  const options: Options[] = [
    {},
    { reduction: 'sum' },
    { labelSmoothing: 0.1 },
    { weight },
    { weight, labelSmoothing: 0.2, ignoreIndex: IGNORED },
    { ignoreIndex: IGNORED, reduction: 'sum' },
  ];

  for (const option of options as NonNullable<Options>[]) {
    const { weight: factors, ...others } = option;
    const named = JSON.stringify({ ...others, weighted: factors !== undefined });
    it(`equals the gradient of the unreduced losses: ${named}`, () => {
      const [logits, target] = [leaf(), targets()];
      for (const incoming of [1, -2.5, 0]) {
        const [gradOutputs, loss] = [
          tensor(incoming, { dtype: float64 }),
          crossEntropy(logits, target, option),
        ];
        assert.match(gradientNode(loss), /crossEntropyWithGradient/);
        assertClose(loss, byRows(logits, target, option), 'loss');
        const [expected] = autograd.grad(byRows(logits, target, option), logits, { gradOutputs });
        assertClose(autograd.grad(loss, logits, { gradOutputs })[0], expected, `${incoming}`);
      }
    });

    it(`has the second gradient of the unreduced losses: ${named}`, () => {
      const [logits, target] = [leaf(), targets()];
      const second = (loss: Tensor): Tensor =>
        autograd.grad(
          (autograd.grad(loss, logits, { createGraph: true })[0] as Tensor).sin().sum(),
          logits,
        )[0] as Tensor;
      assertClose(
        second(crossEntropy(logits, target, option)),
        second(byRows(logits, target, option)),
        'second',
      );
      const few = logits.detach().narrow(0, 0, 3).clone().requiresGrad_();
      assert.ok(autograd.gradcheck((x) => crossEntropy(x, target.narrow(0, 0, 3), option), [few]));
      assert.ok(
        autograd.gradgradcheck((x) => crossEntropy(x, target.narrow(0, 0, 3), option), [few]),
      );
    });
  }

  it('keeps the gradient unchanged for a second backward with retainGraph', () => {
    const [logits, target] = [leaf(), targets()];
    const loss = crossEntropy(logits, target);
    const [once] = autograd.grad(byRows(logits, target, {}), logits) as [Tensor];
    for (const factor of [3, 0, 1, 5]) {
      const gradOutputs = tensor(factor, { dtype: float64 });
      assertClose(
        autograd.grad(loss, logits, { gradOutputs, retainGraph: true })[0],
        once.mul(factor),
        `${factor}`,
      );
    }
    const kept = autograd.grad(loss, logits, { retainGraph: true })[0] as Tensor;
    const last = autograd.grad(loss, logits, {
      gradOutputs: tensor(2, { dtype: float64 }),
    })[0] as Tensor;
    assertClose(kept, once, 'given before the last');
    assertClose(last, once.mul(2), 'the last');
    assert.throws(() => autograd.grad(loss, logits), /a second time/);
  });

  it('accumulates if logits have several losses, and over several backward passes', () => {
    const [logits, target] = [leaf(), targets()];
    const [once] = autograd.grad(byRows(logits, target, {}), logits) as [Tensor];
    crossEntropy(logits, target).add(crossEntropy(logits, target).mul(0.5)).backward();
    crossEntropy(logits, target).backward();
    assertClose(logits.grad, once.mul(2.5), 'grad');
  });

  it('continues through the graph of the logits, and may be hooked', () => {
    const [x, w, target] = [
      randn([ROWS, 5], { dtype: float64 }),
      randn([5, CLASSES], { dtype: float64 }).requiresGrad_(),
      targets(),
    ];
    const run = (loss: (logits: Tensor) => Tensor): Tensor[] => {
      const logits = x.matmul(w);
      const seen: Tensor[] = [];
      logits.registerHook((g) => void seen.push(g));
      loss(logits).backward();
      const [grad] = [w.grad as Tensor];
      w.grad = null;
      return [grad, ...seen];
    };
    const expected = run((logits) => byRows(logits, target, {}));
    run((logits) => crossEntropy(logits, target)).forEach((t, i) =>
      assertClose(t, expected[i], `${i}`),
    );
  });

  it('runs the hooks of saved tensors', () => {
    const [logits, target] = [leaf(), targets()];
    const held: Tensor[] = [];
    const loss = autograd.savedTensorsHooks(
      (t) => held.push(t) - 1,
      (i) => held[i] as Tensor,
      () => crossEntropy(logits, target),
    );
    const before = held.map((t) => t.clone());
    assertClose(
      autograd.grad(loss, logits, { gradOutputs: tensor(4, { dtype: float64 }) })[0],
      autograd.grad(byRows(logits, target, {}).mul(4), logits)[0],
      'hooked',
    );
    held.forEach((t, i) =>
      assert.ok(t.equal(before[i] as Tensor), `what hook ${i} was given has changed`),
    );
  });

  it('is computed only if a gradient is required', () => {
    const [logits, target] = [leaf(float32), targets()];
    const without = (loss: Tensor): void => assert.doesNotMatch(gradientNode(loss), /WithGradient/);
    noGrad(() => without(crossEntropy(logits, target)));
    without(crossEntropy(logits.detach(), target));
    without(crossEntropy(logits, target, { reduction: 'none' }).sum());
    without(crossEntropy(logits, target, { weight: rand([CLASSES]).requiresGrad_() }));
    without(crossEntropy(logits.to(float16), target));
    without(crossEntropy(logits, rand([ROWS, CLASSES])));
    assert.match(gradientNode(new nn.CrossEntropyLoss().forward(logits, target)), /WithGradient/);
  });

  it('keeps the dtype, and the gradient scale of bfloat16 image logits', () => {
    const logits = randn([2, CLASSES, 3, 4]).to(bfloat16).requiresGrad_();
    const target = randint(0, CLASSES, [2, 3, 4]);
    const [got] = autograd.grad(crossEntropy(logits, target), logits) as [Tensor];
    const wide = logits.detach().to(float64).requiresGrad_();
    const [expected] = autograd.grad(
      byRows(wide.movedim(1, -1).reshape([24, CLASSES]), target.reshape([24]), {}),
      wide,
    ) as [Tensor];
    assert.equal(got.dtype, bfloat16);
    assertClose(got, expected.to(bfloat16), 'images');
  });

  it("equals PyTorch's for no rows and for ignored rows", () => {
    const logits = leaf();
    const none = crossEntropy(logits, targets().mul(0).add(IGNORED), { ignoreIndex: IGNORED });
    assert.ok(Number.isNaN(none.item()));
    assert.equal(autograd.grad(none, logits)[0]?.abs().amax().item(), 0);
    const empty = randn([0, CLASSES]).requiresGrad_();
    assert.deepEqual(
      autograd.grad(crossEntropy(empty, randint(0, CLASSES, [0]), { reduction: 'sum' }), empty)[0]
        ?.shape,
      [0, CLASSES],
    );
  });

  it('is freed together with the graph', () => {
    const [logits, target] = [leaf(float32), targets()];
    const step = (): void => {
      crossEntropy(logits.mul(2), target).backward();
      logits.grad = null;
    };
    memory.collect();
    scope(step);
    const before = memory.stats('cpu').allocatedBytes;
    for (let i = 0; i < 5; i++) scope(step);
    assert.equal(memory.stats('cpu').allocatedBytes, before);
  });
});
