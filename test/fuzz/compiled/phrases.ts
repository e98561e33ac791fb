/** The lines that random programs are made of. */
import type { Tensor } from '../../../lib/index.js';
import type { Rng } from '../rng.js';

/** What a line may refer to. */
export interface Scope {
  readonly rng: Rng;
  /** A variable that holds a floating tensor, of a shape if given. */
  any(fits?: (t: Tensor) => boolean): { name: string; t: Tensor };
  /** A new name. */
  fresh(): string;
}

type Phrase = (scope: Scope) => readonly [name: string | null, code: string];

const hasNode = (t: Tensor): boolean => t.requiresGrad && !t.isLeaf;
const matrix = (t: Tensor): boolean => t.ndim === 2;
const withDims = (t: Tensor): boolean => t.ndim > 0;
const rows = (t: Tensor): boolean => t.ndim === 2 && t.shape[1] === 3;
const like =
  (t: Tensor) =>
  (other: Tensor): boolean =>
    other.shape.join() === t.shape.join();

const unary = [
  'sin',
  'tanh',
  'sigmoid',
  'exp',
  'abs',
  'square',
  'neg',
  'relu',
  'clone',
  'detach',
  'contiguous',
  'cos',
  'softplus',
  'gelu',
];
const binary = ['add', 'sub', 'mul', 'maximum', 'atan2'];
const inPlaceUnary = [
  'sin_()',
  'mul_(0.5)',
  'add_(1)',
  'neg_()',
  'tanh_()',
  'zero_()',
  'fill_(0.25)',
  'clamp_(-1, 1)',
  'mul_(k)',
];

function bounded(rng: Rng, t: Tensor): string {
  const dim = rng.int(0, t.ndim - 1);
  const size = t.shape[dim] as number;
  return rng.pick([
    `select(${dim}, ${rng.int(0, size - 1)})`,
    `narrow(${dim}, ${Math.min(1, size - 1)}, ${Math.max(1, size - 1)})`,
    `unsqueeze(${dim})`,
    `transpose(0, ${dim})`,
    `slice(${dim}, 0, null, 2)`,
    'reshape([-1])',
    `flatten()`,
    `expand([2, ${t.shape.join(', ')}])`,
    `viewAs(${'a'})`,
    `view([-1])`,
    `diagonal()`,
    `asStrided([2], [1], 0)`,
  ]);
}

const declared = (scope: Scope, code: string) => [scope.fresh(), code] as const;

export const phrases: readonly (readonly [weight: number, phrase: Phrase])[] = [
  [6, (s) => declared(s, `${s.any().name}.${s.rng.pick(unary)}()`)],
  [
    6,
    (s) => {
      const { name, t } = s.any();
      return declared(
        s,
        `${name}.${s.rng.pick(binary)}(${s.any(s.rng.chance(0.7) ? like(t) : undefined).name})`,
      );
    },
  ],
  [
    3,
    (s) =>
      declared(
        s,
        `${s.any().name}.${s.rng.pick(['mul(k)', 'add(2)', 'div(3)', 'pow(2)', 'softmax(-1)', 'cumsum(0)', 'sum()', 'mean(0)', 'sum(0)', 'amax(-1)'])}`,
      ),
  ],
  [2, (s) => declared(s, `${s.any(matrix).name}.matmul(${s.any(matrix).name})`)],
  [
    6,
    (s) => {
      const { name, t } = s.any(withDims);
      return declared(s, `${name}.${bounded(s.rng, t)}`);
    },
  ],
  [4, (s) => [null, `${s.any().name}.${s.rng.pick(inPlaceUnary)}`]],
  [
    4,
    (s) => {
      const { name, t } = s.any(withDims);
      return [null, `${name}.${bounded(s.rng, t)}.${s.rng.pick(inPlaceUnary)}`];
    },
  ],
  [
    4,
    (s) => {
      const { name, t } = s.any();
      return [
        null,
        `${name}.${s.rng.pick(['add_', 'mul_', 'copy_', 'sub_'])}(${s.any(s.rng.chance(0.8) ? like(t) : undefined).name})`,
      ];
    },
  ],
  [
    1,
    (s) => {
      const { name, t } = s.any(rows);
      return declared(s, `sw.cat([${name}, ${s.any(like(t)).name}], ${s.rng.int(0, 1)})`);
    },
  ],
  // Modules.
  [
    3,
    (s) =>
      declared(
        s,
        `${s.rng.pick(['linear', 'norm', 'drop', 'keeper', 'batch', 'stack'])}(${s.any(rows).name})`,
      ),
  ],
  [1, (s) => declared(s, `(m ?? h.identity)(${s.any(rows).name})`)],
  [0.5, (s) => declared(s, `${s.any(rows).name}.matmul(linear.weight)`)],
  [0.4, (s) => declared(s, `keeper.mean.add(${s.any(rows).name})`)],
  // An attribute is seen only of a module that is called.
  [
    0.3,
    (s) => declared(s, `(keeper.factor = ${s.rng.pick(['k', '3'])}, keeper(${s.any(rows).name}))`),
  ],
  [
    0.3,
    (s) =>
      declared(s, `keeper(${s.any(rows).name}).mul((keeper.factor = ${s.rng.pick(['k', '3'])}))`),
  ],
  [0.3, (s) => declared(s, `(keeper(${s.any(rows).name}), keeper.last ?? keeper.mean)`)],
  // What a function closes over.
  [0.8, (s) => declared(s, `${s.any().name}.mul(factor)`)],
  [0.6, (s) => declared(s, `${s.any().name}.${s.rng.pick(['mul', 'add'])}(box.scale)`)],
  [0.3, (s) => declared(s, `${s.any().name}.mul(box.list.length)`)],
  [0.4, (s) => declared(s, `${s.any(rows).name}.add(box.shift)`)],
  [0.5, (s) => declared(s, `chosen(${s.any(rows).name})`)],
  [0.1, (s) => declared(s, `(factor += 1, ${s.any().name}.mul(factor))`)],
  [0.1, (s) => declared(s, `(box.scale += 1, ${s.any().name}.mul(box.scale))`)],
  [0.1, (s) => [null, `box.shift = ${s.any().name}.detach()`]],
  // Random numbers.
  [
    1,
    (s) =>
      declared(
        s,
        s.rng.pick([
          'sw.rand([2, 3], { dtype: sw.float64 })',
          'sw.randn([3, 3], { dtype: sw.float64 })',
        ]),
      ),
  ],
  [1, (s) => declared(s, `sw.dropout(${s.any().name}, 0.5, true)`)],
  [
    0.5,
    (s) => [null, `${s.any().name}.${s.rng.pick(['normal_()', 'uniform_()', 'bernoulli_(0.5)'])}`],
  ],
  [
    0.3,
    (s) =>
      declared(
        s,
        `sw.forkRng(() => { sw.manualSeed(3); return sw.rand([3], { dtype: sw.float64 }); })`,
      ),
  ],
  // Functions with gradients of their own.
  [1, (s) => declared(s, `h.Scaled.apply(${s.any().name}, k)`)],
  [0.7, (s) => declared(s, `h.Pair.apply(${s.any().name})[${s.rng.int(0, 1)}]`)],
  [0.4, (s) => declared(s, `h.Doubled.apply(${s.any().name})`)],
  // Hooks.
  [
    1,
    (s) => [
      null,
      `${s.any((t) => t.requiresGrad).name}.registerHook((g) => ${s.rng.pick(['g.mul(2)', 'g.sin()', 'g.mul(k)'])})`,
    ],
  ],
  [
    0.5,
    (s) => {
      const { name, t } = s.any((each) => each.requiresGrad);
      return [null, `${name}.registerHook((g) => g.mul(${s.any(like(t)).name}.detach()))`];
    },
  ],
  [0.3, (s) => [null, `${s.any(hasNode).name}.retainGrad()`]],
  [
    0.3,
    (s) => [
      null,
      `${s.any(hasNode).name}.gradFn.registerHook((gs) => gs.map((g) => g && g.sin()))`,
    ],
  ],
  [
    0.3,
    (s) => [
      null,
      `${s.any(hasNode).name}.gradFn.registerPrehook((gs) => gs.map((g) => g && g.mul(k)))`,
    ],
  ],
  // Modes.
  [1, (s) => declared(s, `sw.noGrad(() => ${s.any().name}.${s.rng.pick(unary)}())`)],
  [1, (s) => [null, `sw.noGrad(() => ${s.any().name}.${s.rng.pick(inPlaceUnary)})`]],
  [0.4, (s) => declared(s, `sw.noGrad(() => sw.enableGrad(() => ${s.any().name}.mul(3)))`)],
  [0.7, (s) => [null, `${s.any().name}.detach().${s.rng.pick(inPlaceUnary)}`]],
  [0.5, (s) => [null, `${s.any().name}.data.${s.rng.pick(inPlaceUnary)}`]],
  // Control flow.
  [1, (s) => declared(s, `k > 1 ? ${s.any().name}.sin() : ${s.any().name}.mul(2)`)],
  [
    0.7,
    (s) =>
      declared(s, `${s.any().name}.requiresGrad ? ${s.any().name}.mul(2) : ${s.any().name}.add(1)`),
  ],
  [0.5, (s) => declared(s, `a === b ? ${s.any().name}.mul(2) : ${s.any().name}.add(1)`)],
  [
    0.4,
    (s) => declared(s, `${s.any().name}.isLeaf ? ${s.any().name}.mul(2) : ${s.any().name}.add(1)`),
  ],
  [
    0.4,
    (s) =>
      declared(
        s,
        `${s.any().name}._base === null ? ${s.any().name}.mul(2) : ${s.any().name}.add(1)`,
      ),
  ],
  [
    0.4,
    (s) =>
      declared(
        s,
        `${s.any().name}.isContiguous() ? ${s.any().name}.mul(2) : ${s.any().name}.add(1)`,
      ),
  ],
  [
    0.4,
    (s) =>
      declared(
        s,
        `${s.any().name}.grad === null ? ${s.any().name}.mul(2) : ${s.any().name}.add(1)`,
      ),
  ],
  [
    0.4,
    (s) =>
      declared(s, `${s.any().name}._version > 0 ? ${s.any().name}.mul(2) : ${s.any().name}.add(1)`),
  ],
  [0.7, (s) => [null, `for (let n = 0; n < k; n++) ${s.any().name}.mul_(1.25)`]],
  [
    0.3,
    (s) =>
      declared(
        s,
        `c.untypedStorage() === a.untypedStorage() ? ${s.any().name}.mul(2) : ${s.any().name}.add(1)`,
      ),
  ],
  // State.
  [0.3, (s) => declared(s, `a.grad === null ? ${s.any().name}.mul(2) : a.grad.mul(2)`)],
  [0.3, (s) => [null, `a.grad = ${s.any().name}.detach()`]],
  [0.3, () => [null, 'linear.zeroGrad()']],
  [0.3, (s) => declared(s, `${s.any().name}.detach().requiresGrad_()`)],
  [0.3, (s) => declared(s, `sw.tensor([1, 2, 3], { dtype: sw.float64 })`)],
  [0.2, (s) => declared(s, `new sw.nn.Parameter(${s.any().name}.detach().clone())`)],
  // Breaks. The sum of a norm is 0 but for rounding.
  [
    0.15,
    (s) =>
      declared(
        s,
        `${s.any().name}.sum().item() > 0.0123 ? ${s.any().name}.mul(2) : ${s.any().name}.add(1)`,
      ),
  ],
  [0.1, () => [null, 'sw.graphBreak()']],
  [0.15, (s) => [null, `${s.any(hasNode).name}.sum().backward({ retainGraph: true })`]],
  [
    0.15,
    (s) =>
      declared(
        s,
        `sw.autograd.grad(${s.any(hasNode).name}.sum(), [a], { allowUnused: true, retainGraph: true })[0] ?? a.mul(1)`,
      ),
  ],
];
