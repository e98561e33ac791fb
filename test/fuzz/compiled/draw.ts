/** Draws a program line by line: each line runs as it is drawn, and stays if it does. */
import { manualSeed, ShardwiseError, type Tensor } from '../../../lib/index.js';
import type { Rng } from '../rng.js';
import { phrases, type Scope } from './phrases.js';
import { evaluate, isFloat, type Line, type Pass, type Program } from './program.js';

/** Larger tensors are not kept. */
const MAX_ELEMENTS = 200;

const OUTER: readonly Line[] = [
  ['outer', 'h.leaf([2, 3], 90)'],
  ['plain', 'h.plain([3], 91)'],
  ['linear', 'h.double(new sw.nn.Linear(3, 3))'],
  ['norm', 'h.double(new sw.nn.LayerNorm(3))'],
  ['drop', 'new sw.nn.Dropout(0.5)'],
  ['batch', 'h.double(new sw.nn.BatchNorm1d(3))'],
  ['keeper', 'new h.Keeper(3)'],
  ['stack', 'new sw.nn.Sequential(linear, new sw.nn.Tanh(), norm)'],
  ['box', '{ scale: 2, shift: h.plain([3], 92), list: [1, 2] }'],
  ['factor', '1.5', true],
  ['chosen', '[linear, keeper][0]', true],
].map(([name, code, isRebound]) => ({
  name: name as string,
  code: code as string,
  ...(isRebound === true ? { isRebound } : {}),
}));

const HOOKS = [
  'linear.registerForwardHook((m, args, y) => y.mul(2))',
  'norm.registerForwardPreHook((m, [x]) => [x.add(1)])',
  'keeper.registerFullBackwardHook((m, [gx], [gy]) => [gx.mul(2)])',
  'linear.weight.registerHook((g) => g.mul(3))',
  'linear.weight.registerPostAccumulateGradHook((t) => { t.grad.mul_(0.5); })',
  'outer.registerPostAccumulateGradHook((t) => { t.grad = t.grad.sin(); })',
  'linear.registerFullBackwardHook((m, [gx], [gy]) => [gx === null ? gx : gx.add(1)])',
  'norm.registerFullBackwardPreHook((m, [gy]) => [gy.mul(0.5)])',
  'linear.weight.requiresGrad_(false)',
  'outer.grad = h.plain([2, 3], 95)',
  'drop.eval()',
  'keeper.eval()',
];

const PASSES: readonly (readonly [weight: number, passes: readonly Pass[]])[] = [
  [3, []],
  [11, ['backward']],
  [2, ['backward', 'backward']],
  [2, ['grad', 'backward']],
  [1, ['backward', 'grad']],
  [1, ['grad']],
];

const BETWEEN = [
  'outer.data.mul_(1.25)',
  'outer.grad = null',
  'linear.eval()',
  'drop.trainingFlag ? drop.eval() : drop.train()',
  'keeper.factor = 3 - i',
  'keeper.last = null',
  'sw.noGrad(() => linear.weight.mul_(0.5))',
  'linear.weight.requiresGrad_(i % 2 === 0)',
  'linear.weight = new sw.nn.Parameter(h.plain([3, 3], i))',
  'i === 1 && linear.registerForwardHook((m, args, y) => y.mul(3))',
  'i === 1 && linear.weight.registerHook((g) => g.mul(2))',
  'norm.zeroGrad()',
  'plain.add_(1)',
  'plain.requiresGrad_(i === 1)',
  'drop.p = 0.25 * i',
  'norm.eps = 0.1 * (i + 1)',
  'batch.momentum = 0.5',
  'box.scale = 3 - i',
  'box.list.push(i)',
  'box.shift = h.plain([3], i)',
  'box.shift.add_(1)',
  'box.shift.requiresGrad_(i === 0)',
  // Which value a variable holds is looked at in the second and the fourth call.
  'i % 2 === 0 && (factor = i + 3)',
  'i % 2 === 0 && (chosen = chosen === linear ? keeper : linear)',
];

/** What a caller does with results before the backward passes; their nodes are others. */
const AFTER = [
  'r[0].requiresGrad && r[0].registerHook((g) => g.mul(2))',
  'r.at(-1).requiresGrad && r.at(-1).registerHook((g) => g.sin())',
  'r[1]?.requiresGrad && r[1].registerHook((g) => g.mul(r[0].detach().mean()))',
  'r[0].requiresGrad && r[0].retainGrad()',
  'r[1]?.requiresGrad && r[1].retainGrad()',
];

const input = (rng: Rng, shape: string, seed: number): string =>
  `h.${
    rng.weighted([
      [5, 'leaf'],
      [3, 'plain'],
      [2, 'inner'],
    ] as const)[1]
  }(${shape}, i + ${seed})`;

/** One tensor for the first two calls, perhaps another kind after that. */
function varied(rng: Rng, first: string, other: () => string): string {
  if (rng.chance(0.75)) return first;
  return `i === ${rng.int(0, 3)} ? (${other()}) : (${first})`;
}

function inputsOf(rng: Rng): Line[] {
  const shape = (): string => rng.pick(['[2, 3]', '[2, 3]', '[3, 3]', '[3]', '[i + 2, 3]']);
  const first = rng.chance(0.1) ? '[i + 2, 3]' : '[2, 3]';
  const a = varied(rng, input(rng, first, 10), () => input(rng, shape(), 11));
  const alias = (): string =>
    rng.chance(0.5)
      ? rng.pick(['a', 'a.detach()', 'a.view([-1])', 'a.select(0, 0)', 'a.t()', 'outer.detach()'])
      : // A first call would take the outer tensor for the argument, as documented.
        `i === 0 ? h.plain([3], 33) : ${rng.pick(['outer', 'plain', 'linear.weight', 'keeper.mean'])}`;
  const b = varied(rng, rng.chance(0.2) ? alias() : input(rng, shape(), 20), () =>
    rng.chance(0.5) ? alias() : input(rng, shape(), 21),
  );
  const c = varied(rng, rng.chance(0.1) ? alias() : input(rng, shape(), 30), () =>
    rng.chance(0.5) ? alias() : input(rng, shape(), 31),
  );
  const k = rng.chance(0.6) ? '2' : rng.pick(['i % 2 + 1', 'i === 2 ? 0 : 1', '[1, 1, 3, 3][i]']);
  return [
    { name: 'a', code: a },
    { name: 'b', code: b },
    { name: 'c', code: c },
    { name: 'k', code: k },
    {
      name: 'm',
      code: rng.chance(0.7)
        ? 'null'
        : rng.pick([
            'linear',
            'drop',
            'keeper',
            'i < 2 ? linear : norm',
            'i === 1 ? keeper : stack',
          ]),
    },
  ];
}

/** A random program. Its lines run eagerly, at least in the first call. */
export function drawProgram(rng: Rng): Program {
  manualSeed(7);
  const variables = new Map<string, unknown>();
  const accept = (line: Line): boolean => {
    try {
      const value = evaluate(line, variables);
      if (line.name !== null) variables.set(line.name, value);
      return true;
    } catch (error) {
      if (error instanceof ShardwiseError || error instanceof TypeError) return false;
      throw error;
    }
  };
  const outer: Line[] = OUTER.filter(accept);
  for (const code of HOOKS)
    if (rng.chance(0.08) && accept({ name: null, code })) outer.push({ name: null, code });
  variables.set('i', 0);
  const inputs = inputsOf(rng);
  if (!inputs.every(accept)) return drawProgram(rng);
  variables.delete('i');
  const body: Line[] = [];
  const scope = scopeOf(rng, variables);
  const count = rng.int(1, 14);
  for (let tries = 0; body.length < count && tries < 60; tries++) {
    const [name, code] = rng.weighted(phrases)[1](scope);
    const line = { name, code };
    if (!accept(line)) continue;
    body.push(line);
    const made = name === null ? null : variables.get(name);
    if (name !== null && !(isFloat(made) && made.numel() <= MAX_ELEMENTS && made.numel() > 0))
      variables.delete(name);
  }
  const results = resultsOf(rng, variables);
  const kept = used(outer, [...inputs, ...body], results);
  const names = new Set(kept.map(({ name }) => name));
  const later = BETWEEN.filter(
    (code) =>
      names.has(/(outer|linear|drop|keeper|norm|plain)\b/.exec(code)?.[0] ?? '') &&
      rng.chance(0.12),
  )
    // Whose module the function does not call is a constant of the graph, as documented.
    .filter(
      (code) =>
        !/^linear.weight = /.test(code) || !body.some((line) => /linear\.weight/.test(line.code)),
    );
  return {
    outer: kept,
    inputs,
    body,
    after: AFTER.filter(() => rng.chance(0.06)).map((code) => ({ name: null, code })),
    between: later.map((code) => ({ name: null, code })),
    results,
    passes: rng.weighted(PASSES)[1],
    withoutGrad: rng.chance(0.1) ? rng.int(0, 3) : -1,
  };
}

/** The outer lines that the others refer to, directly or through each other. */
function used(outer: readonly Line[], others: readonly Line[], results: readonly string[]): Line[] {
  let text = [...others.map(({ code }) => code), ...results].join(' ');
  const mentions = (name: string): boolean => new RegExp(`\\b${name}\\b`).test(text);
  const kept: Line[] = [];
  for (const line of outer.toReversed()) {
    const subject = line.name ?? /^\w+/.exec(line.code)?.[0] ?? '';
    // A statement about a variable follows its declaration; it stays if the declaration does.
    if (!mentions(subject)) continue;
    text += ` ${line.code}`;
    kept.unshift(line);
  }
  return kept;
}

function scopeOf(rng: Rng, variables: ReadonlyMap<string, unknown>): Scope {
  let next = 0;
  return {
    rng,
    fresh: () => `t${next++}`,
    any(fits = () => true) {
      const all = [...variables].filter((entry): entry is [string, Tensor] => isFloat(entry[1]));
      const fitting = all.filter(([, t]) => fits(t));
      const list = fitting.length > 0 ? fitting : all;
      // Later ones more often, so that programs are deep.
      const [name, t] = rng.chance(0.5) ? rng.pick(list.slice(-3)) : rng.pick(list);
      return { name, t };
    },
  };
}

function resultsOf(rng: Rng, variables: ReadonlyMap<string, unknown>): string[] {
  const tensors = [...variables].flatMap(([name, value]) => (isFloat(value) ? [name] : []));
  const made = tensors.filter((name) => /^t\d/.test(name));
  const pool = made.length > 0 && rng.chance(0.9) ? made : tensors;
  const results = rng.list(rng.int(1, 3), () => rng.pick(rng.chance(0.8) ? pool : tensors));
  if (made.length > 0) results.unshift(made.at(-1) as string);
  if (rng.chance(0.1)) results.push(`{ x: ${rng.pick(pool)}, n: k }`);
  if (rng.chance(0.1)) results.push('k');
  return results;
}
