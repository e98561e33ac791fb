/** Options that the types declare are options that run: the declaration of the function knows each, or a call takes it. */
import assert from 'node:assert/strict';
import { allDeclarations } from '../../lib/core/signature.js';
import { add, amp, autograd, compile, compiler, div, library, nn, ones, sub, Tensor, tensor } from '../../lib/index.js';
import { declaredOptions } from './option-types.js';

const x = () => ones([2, 2]);
const leaf = () => ones([2, 2], { requiresGrad: true });
const square = (t: Tensor) => t.mul(t).sum();

/** Values that an option may have, where its default will not do as a sample. */
const values: Record<string, unknown> = {
  deviceType: 'cpu', dtype: 'bfloat16', enabled: true, cacheEnabled: true, initScale: 2, growthFactor: 2, backoffFactor: 0.5, growthInterval: 2, gradOutputs: [ones([])], gradTensors: [ones([])],
  retainGraph: true, createGraph: true, allowUnused: true, eps: 1e-6, atol: 1e-3, rtol: 1e-3, raiseException: false, backend: 'eager', fullgraph: false, dynamic: false, mode: 'default', recursive: true,
  device: 'cpu', copy: true, nonBlocking: false, alpha: 2, roundingMode: 'floor', pinMemory: false, requiresGrad: false, mutatesArgs: [], gain: 2, a: 0.1, nonlinearity: 'relu',
}; // biome-ignore format: a table

type Options = Record<string, never>;
const double = (options: Options) => ({ ...options }) as never;
const fan = (o: Options) => ('mode' in o ? { mode: 'fan_in' } : o) as Options;

/** Calls of what is not made by defineFunction, by the name that the types have it under. */
const calls: Record<string, (options: Options) => unknown> = {
  'amp.autocast': (o) => amp.autocast({ deviceType: 'cpu', ...o } as never, () => 1),
  'new amp.GradScaler': (o) => new amp.GradScaler(o),
  'autograd.backward': (o) => autograd.backward([square(leaf())], double(o)),
  'autograd.grad': (o) => {
    const input = leaf();
    return autograd.grad([square(input)], [input], double(o));
  },
  'autograd.gradcheck': (o) => autograd.gradcheck(square, [leaf().double().detach().requiresGrad_()], o),
  'autograd.gradgradcheck': (o) => autograd.gradgradcheck(square, [leaf().double().detach().requiresGrad_()], o),
  compile: (o) => compile((t: Tensor) => t.add(1), o)(x()),
  'compiler.disable': (o) => compiler.disable((t: Tensor) => t.add(1), o),
  'Tensor.to': (o) => x().to(o),
  'Tensor.copy_': (o) => x().copy_(x(), o),
  'Tensor.newTensor': (o) => x().newTensor([1], o),
  'library.customOp': (o) => library.customOp(`options::${Object.keys(o)[0]}`, o as never, ((t: Tensor) => t.clone()) as never),
  'nn.init.xavierUniform_': (o) => nn.init.xavierUniform_(x(), o),
  'nn.init.xavierNormal_': (o) => nn.init.xavierNormal_(x(), o),
  'nn.init.orthogonal_': (o) => nn.init.orthogonal_(x(), o),
  'nn.init.kaimingUniform_': (o) => nn.init.kaimingUniform_(x(), fan(o)),
  'nn.init.kaimingNormal_': (o) => nn.init.kaimingNormal_(x(), fan(o)),
  add: (o) => add(x(), x(), o),
  sub: (o) => sub(x(), x(), o),
  div: (o) => div(x(), x(), o),
  ...Object.fromEntries(['add', 'add_', 'sub', 'sub_', 'subtract', 'subtract_'].map((name) => [`Tensor.${name}`, (o: Options) => x()[name as 'add'](x(), o)])),
  ...Object.fromEntries(['div', 'div_', 'divide', 'divide_', 'trueDivide', 'trueDivide_'].map((name) => [`Tensor.${name}`, (o: Options) => x()[name as 'div'](x(), o)])),
};

/** Not called: they need files, a GPU, or are JavaScript's own (`cause` of errors). */
const uncalled = /^(loadSafetensors|saveSafetensors|Tensor\.cuda|new cuda\.\w+|new \w+Error)$/;
/** Second names: the same functions. */
const aliases = /^(concat|concatenate|clip|divide|trueDivide|moveaxis|subtract|swapaxes|swapdims)$/;

/** All names that a function may be given as options: of a class, those of its constructor and of its calls. */
function known(): Map<string, Set<string>> {
  const names = new Map<string, Set<string>>();
  for (const { name, positional, positionalOnly, keywordOnly } of allDeclarations()) {
    names.set(name, new Set([...(names.get(name) ?? []), ...positional.slice(positionalOnly), ...keywordOnly]));
  }
  return names;
}

/** The declaration of a function, of the op that a method in place overwrites with, or of the method that another name stands for. */
function declaredNames(name: string, names: Map<string, Set<string>>): Set<string> | undefined {
  const own = name.replace(/^new /, '').split('.').pop() as string;
  const direct = names.get(own) ?? names.get(own.replace(/_$/, ''));
  if (direct !== undefined || !name.startsWith('Tensor.')) return direct;
  const methods = Tensor.prototype as unknown as Record<string, unknown>;
  const other = [...names.keys()].find((n) => Object.hasOwn(methods, n) && methods[n] === methods[own]);
  return other === undefined ? undefined : names.get(other);
}

describe('the options that the types declare', function () {
  this.timeout(180_000); // TypeScript reads the whole library
  const names = known();
  let declared: ReturnType<typeof declaredOptions>;
  before(() => {
    declared = declaredOptions('lib/index.ts');
  });

  it('are many', () => assert.ok(declared.size > 400, String(declared.size)));

  it('are those of the declarations', () => {
    const unknown: string[] = [];
    for (const [name, options] of declared) {
      const has = calls[name] === undefined ? declaredNames(name, names) : undefined;
      if (has !== undefined) unknown.push(...[...options].filter((option) => !has.has(option)).map((option) => `${name}: ${option}`));
    }
    assert.deepEqual(unknown, []);
  });

  it('run where there is no declaration', () => {
    const refused: string[] = [];
    for (const [name, call] of Object.entries(calls)) {
      for (const option of declared.get(name) ?? []) {
        const value = option === 'inputs' ? [leaf()] : values[option];
        try {
          call({ [option]: value } as Options);
        } catch (error) {
          refused.push(`${name}: ${option}: ${(error as Error).message}`);
        }
      }
    }
    assert.deepEqual(refused, []);
  });

  it('are called or declared, but for a few that are named here', () => {
    const missed = [...declared.keys()].filter((name) => declaredNames(name, names) === undefined && calls[name] === undefined && !uncalled.test(name) && !aliases.test(name));
    assert.deepEqual(missed, []);
    const gone = Object.keys(calls).filter((name) => !declared.has(name));
    assert.deepEqual(gone, []);
  });

  it('are refused where they are of another name', () => {
    assert.throws(() => tensor([1]).sum({ dims: 0 } as never), /there is no option "dims"; options are dim, keepdim, dtype/);
  });
});
