/** Every module of `nn` has, compiled, the results, gradients and buffers that it has eagerly. */
import assert from 'node:assert/strict';
import { compile, manualSeed, nn, rand, randint, randn, Tensor, tree } from '../../lib/index.js';
import { assertSame, backends } from './backends.js';

interface Example {
  readonly module: nn.AnyModule;
  readonly inputs: () => unknown[];
}

const x = (...shape: number[]): Tensor => randn(shape, { requiresGrad: true });
const unary = (module: nn.AnyModule): Example => ({ module, inputs: () => [x(3, 4)] });
const loss = (module: nn.AnyModule, target = (): Tensor => randn([3, 4])): Example => ({
  module,
  inputs: () => [x(3, 4), target()],
});
const classes = (): Tensor => randint(0, 4, [3]);
const signs = (): Tensor => rand([3]).sub(0.5).sign();
const sequence = { dropout: 0.25, batchFirst: true };

/** Makes each module; the arguments of a call are drawn anew each time. */
const examples: Record<string, () => Example> = {
  Bilinear: () => ({ module: new nn.Bilinear(4, 3, 2), inputs: () => [x(5, 4), x(5, 3)] }),
  BatchNorm1d: () => unary(new nn.BatchNorm1d(4)),
  CosineEmbeddingLoss: () => ({
    module: new nn.CosineEmbeddingLoss({ margin: 0.1 }),
    inputs: () => [x(3, 4), x(3, 4), signs()],
  }),
  CosineSimilarity: () => ({
    module: new nn.CosineSimilarity(),
    inputs: () => [x(3, 4), x(3, 4)],
  }),
  PairwiseDistance: () => ({
    module: new nn.PairwiseDistance(),
    inputs: () => [x(3, 4), x(3, 4)],
  }),
  MarginRankingLoss: () => ({
    module: new nn.MarginRankingLoss({ margin: 0.1 }),
    inputs: () => [x(3), x(3), signs()],
  }),
  TripletMarginLoss: () => ({
    module: new nn.TripletMarginLoss(),
    inputs: () => [x(3, 4), x(3, 4), x(3, 4)],
  }),
  BCELoss: () => ({
    module: new nn.BCELoss(),
    inputs: () => [rand([3, 4], { requiresGrad: true }), rand([3, 4])],
  }),
  BCEWithLogitsLoss: () => loss(new nn.BCEWithLogitsLoss(), () => rand([3, 4])),
  CrossEntropyLoss: () => loss(new nn.CrossEntropyLoss({ labelSmoothing: 0.1 }), classes),
  NLLLoss: () => loss(new nn.NLLLoss(), classes),
  Linear: () => unary(new nn.Linear(4, 2)),
  Embedding: () => ({
    module: new nn.Embedding(7, 3, { paddingIdx: 1 }),
    inputs: () => [randint(0, 7, [2, 5])],
  }),
  Dropout: () => unary(new nn.Dropout(0.5)),
  Flatten: () => ({ module: new nn.Flatten(), inputs: () => [x(2, 3, 2)] }),
  Unflatten: () => unary(new nn.Unflatten(1, [2, 2])),
  GroupNorm: () => ({ module: new nn.GroupNorm(2, 4), inputs: () => [x(2, 4, 3)] }),
  LayerNorm: () => unary(new nn.LayerNorm(4)),
  RMSNorm: () => unary(new nn.RMSNorm(4)),
  GLU: () => unary(new nn.GLU()),
  LogSoftmax: () => unary(new nn.LogSoftmax(1)),
  Softmax: () => unary(new nn.Softmax(1)),
  Softmin: () => unary(new nn.Softmin(1)),
  Threshold: () => unary(new nn.Threshold(0.1, 2)),
  Sequential: () => unary(new nn.Sequential(new nn.Linear(4, 3), new nn.Dropout(0.5))),
  MultiheadAttention: () => ({
    module: new nn.MultiheadAttention(8, 2, sequence),
    inputs: () => [x(2, 5, 8), x(2, 3, 8), x(2, 3, 8)],
  }),
  Transformer: () => ({
    module: new nn.Transformer({
      dModel: 8,
      nhead: 2,
      numEncoderLayers: 1,
      numDecoderLayers: 1,
      dimFeedforward: 16,
      ...sequence,
    }),
    inputs: () => [x(2, 5, 8), x(2, 3, 8)],
  }),
  TransformerEncoder: () => ({
    module: new nn.TransformerEncoder(
      new nn.TransformerEncoderLayer(8, 2, { dimFeedforward: 16, ...sequence }),
      2,
    ),
    inputs: () => [x(2, 5, 8)],
  }),
  TransformerEncoderLayer: () => ({
    module: new nn.TransformerEncoderLayer(8, 2, { dimFeedforward: 16, ...sequence }),
    inputs: () => [x(2, 5, 8)],
  }),
  TransformerDecoder: () => ({
    module: new nn.TransformerDecoder(
      new nn.TransformerDecoderLayer(8, 2, { dimFeedforward: 16, ...sequence }),
      2,
    ),
    inputs: () => [x(2, 5, 8), x(2, 3, 8)],
  }),
  TransformerDecoderLayer: () => ({
    module: new nn.TransformerDecoderLayer(8, 2, { dimFeedforward: 16, ...sequence }),
    inputs: () => [x(2, 5, 8), x(2, 3, 8)],
  }),
};

/** They hold others and have no forward. */
const holders = ['ModuleDict', 'ModuleList', 'ParameterDict', 'ParameterList'];

type Constructor = new () => nn.AnyModule;
const isModule = (value: unknown): value is Constructor =>
  typeof value === 'function' && value.prototype instanceof nn.Module;

/** Modules without options get one argument, losses two of one shape. */
function exampleOf(name: string, of: Constructor): Example {
  const made = examples[name]?.();
  if (made !== undefined) return made;
  return name.endsWith('Loss') ? loss(new of()) : unary(new of());
}

const list = (t: Tensor | null): unknown => t?.tolist() ?? null;

/** What a caller sees of two calls in training and one in evaluation. */
function observed(example: () => Example, compiled: (module: nn.AnyModule) => unknown): unknown[] {
  manualSeed(1);
  const { module, inputs } = example();
  const run = compiled(module) as (...args: unknown[]) => unknown;
  return [true, true, true, false].map((isTraining, call) => {
    module.train(isTraining);
    module.zeroGrad();
    manualSeed(call);
    const args = inputs();
    const results = tree.tensors(run(...args));
    const tracked = results.filter((t) => t.requiresGrad).map((t) => t.mul(t.detach()).sum());
    if (tracked.length > 0) tracked.reduce((sum, t) => sum.add(t)).backward();
    return {
      results: results.map((t) => list(t.detach())),
      layouts: results.map((t) => [t.dtype.name, t.shape, t.strides, t.requiresGrad]),
      gradients: args.map((t) => (t instanceof Tensor ? list(t.grad) : null)),
      parameters: [...module.parameters()].map((p) => list(p.grad)),
      buffers: [...module.buffers()].map(list),
    };
  });
}

describe('every module, compiled,', () => {
  const modules = Object.entries(nn as object).flatMap(([name, of]: [string, unknown]) =>
    isModule(of) ? [[name, of] as const] : [],
  );

  it('is here', () => {
    const names = modules.map(([name]) => name);
    assert.deepEqual(
      [...Object.keys(examples), ...holders].filter((name) => !names.includes(name)),
      [],
    );
    assert.ok(names.length > 50);
  });

  for (const [name, of] of modules) {
    if (holders.includes(name)) continue;
    for (const backend of backends)
      it(`equals the module run eagerly by ${backend}: ${name}`, () => {
        const example = (): Example => exampleOf(name, of);
        const expected = observed(example, (module) => module);
        const found = observed(example, (m) => compile(m, { backend, fullgraph: true }));
        assertSame(found, expected, backend, name);
      });
  }

  for (const backend of backends)
    it(`is captured where containers hold it, by ${backend}`, () => {
      class Holding extends nn.Module {
        readonly layers = new nn.ModuleList([new nn.Linear(4, 4), new nn.Tanh()]);
        readonly named = new nn.ModuleDict({ out: new nn.Linear(4, 2) });
        readonly factors = new nn.ParameterList([new nn.Parameter(randn([4]))]);
        readonly shifts = new nn.ParameterDict({ one: new nn.Parameter(randn([4])) });
        forward(input: Tensor): Tensor {
          let h = input;
          for (const layer of this.layers) h = (layer as nn.Linear)(h);
          const [factor] = this.factors;
          h = h.mul(factor as Tensor).add(this.shifts.get('one') as Tensor);
          return (this.named.get('out') as nn.Linear)(h);
        }
      }
      const example = (): Example => unary(new Holding() as unknown as nn.AnyModule);
      const expected = observed(example, (module) => module);
      const found = observed(example, (m) => compile(m, { backend, fullgraph: true }));
      assertSame(found, expected, backend, 'containers');
    });
});
