/** What backends, compilers of graphs and partition functions must return, and the errors. */
import assert from 'node:assert/strict';
import {
  aotAutograd,
  compiledAutograd,
  defaultPartition,
  type GraphModule,
  type JointGraph,
  type LoweredCompiler,
  type Partition,
  type PartitionFunction,
} from '../../lib/compile/index.js';
import { autograd, CompileError, compile, nn, ones, type Tensor, zeros } from '../../lib/index.js';

type Lowered = ReturnType<LoweredCompiler>;

const model = new nn.Sequential(new nn.Linear(2, 3), new nn.Tanh());
const step = (x: Tensor): Tensor => model(x).sin();
const run = (options: Parameters<typeof aotAutograd>[0]): void =>
  compile(step, { backend: aotAutograd(options) })(ones([4, 2]))
    .sum()
    .backward();

/** Checks that all patterns match the message. */
const refused = (fn: () => unknown, ...patterns: readonly RegExp[]): void =>
  assert.throws(fn, (error: Error) => {
    assert.ok(error instanceof CompileError, String(error));
    for (const pattern of patterns) assert.match(error.message, pattern);
    return true;
  });

const PLACE = /called at .*compilers\.test\.[jt]s:\d+/;

describe('an error of a compiler that aotAutograd got', () => {
  const changing =
    (change: (results: readonly unknown[]) => readonly unknown[]): LoweredCompiler =>
    (module: GraphModule): Lowered =>
    (...inputs) =>
      change(module.forward.bind(module)(...inputs)) as never;

  it('names the gradient of another shape, the node, its call and both shapes', () => {
    const transposed = Object.assign(changing((results) => results.map((t) => (t as Tensor).t())));
    refused(
      () => run({ bwCompiler: transposed }),
      /^aotAutograd: the function that bwCompiler made of the backward graph of step returned /,
      /float32\[\d, \d\] as output \d, which is %\w+, float32\[\d, \d\], a gradient/,
      PLACE,
      /It must return one value for each output of the graph, with the shape and dtype/,
    );
  });

  it('names the saved value that the forward function does not return', () => {
    function dropping(module: GraphModule): Lowered {
      return (...inputs) => module.forward(...inputs).slice(0, 1);
    }
    refused(
      () => run({ fwCompiler: dropping }),
      /the function that fwCompiler dropping made of the forward graph of step returned 1 output /,
      /instead of \d; the first missing is %\w+, float32\[\d, \d\], saved for backward/,
    );
  });

  it('names the module of the node', () => {
    refused(() => run({ fwCompiler: changing(() => []) }), /0 outputs instead of \d/, /%sin/);
    const compiled = compile(model, { backend: aotAutograd({ fwCompiler: changing(() => []) }) });
    refused(() => compiled(ones([4, 2])), /%tanh, float32\[4, 3\], of module 1, called at/);
  });

  it('names a compiler that returns no function', () => {
    refused(() => run({ fwCompiler: () => 3 as never }), /fwCompiler returned 3 .*not a function/);
  });
});

describe('an error of a partition function', () => {
  const partition =
    (change: (partition: Partition) => unknown): PartitionFunction =>
    (joint: JointGraph) =>
      change(defaultPartition(joint)) as Partition;
  const cases: Record<string, [change: (p: Partition) => unknown, pattern: RegExp]> = {
    nothing: [() => undefined, /returned undefined, for the graph of step/],
    'a list': [(p) => [p.forward, p.backward], /returned undefined as forward, and not a graph/],
    'saved values as an object': [
      (p) => ({ ...p, saved: {} }),
      /an object as saved, and not an array/,
    ],
    'saved values of another graph': [
      (p) => ({ ...p, saved: [{ node: p.backward.nodes[0], output: 7 }] }),
      /%\w+ as saved value 0, which is no value of the joint graph/,
    ],
    'fewer saved values': [
      (p) => ({ ...p, saved: p.saved.slice(1) }),
      /a backward graph with .* input|a forward graph with \d outputs instead of/,
    ],
    'a forward graph without saved values': [
      (p) => {
        p.forward.outputs = p.forward.outputs.slice(0, 1);
        return p;
      },
      /a forward graph with 1 output instead of \d; the first missing is %\w+, .*, saved for back/,
    ],
    'a backward graph with fewer gradients': [
      (p) => {
        p.backward.outputs = p.backward.outputs.slice(0, 1);
        return p;
      },
      /a backward graph with 1 output instead of \d; the first missing is %/,
    ],
    'gradients in another order': [
      (p) => {
        p.backward.outputs = [...p.backward.outputs].reverse();
        return p;
      },
      /a backward graph with float32\[3, 2\] as output 0, which is %\w+, float32\[3\]/,
    ],
    'a graph whose values come late': [
      (p) => {
        p.backward.nodes.reverse();
        return p;
      },
      /a backward graph that cannot run: node %\w+ uses %\w+, which does not come before it/,
    ],
  };
  for (const [what, [change, pattern]] of Object.entries(cases))
    it(`says what it returned, for which graph, and what is expected: ${what}`, () =>
      refused(
        () => run({ partitionFn: partition(change) }),
        /^aotAutograd: partitionFn returned /,
        pattern,
        /for the graph of step\. It must return \{ forward, backward, saved \} as defaultPartition/,
      ));

  it('names the function', () => {
    function cheap(): Partition {
      return null as never;
    }
    refused(() => run({ partitionFn: cheap }), /^aotAutograd: partitionFn cheap returned null/);
  });
});

describe('an error of a backend', () => {
  const x = ones([2]);

  it('names a function that has no other name than that of the option once', () => {
    const backend = (): never => 3 as never;
    refused(() => compile(step, { backend })(ones([4, 2])), /^compile: the backend returned 3/);
  });

  it('is thrown for captured graphs that are compiled again', () => {
    const pass = (compiler: (module: GraphModule) => unknown) => (): void =>
      compiledAutograd.enable(compiler as never, () => {
        const leaf = ones([2]).requiresGrad_();
        autograd.grad(leaf.square().sum(), [leaf]);
      });
    function wide(): () => Tensor[] {
      return () => [zeros([3])];
    }
    refused(
      pass((module) => compile(module, { backend: wide as never })),
      /^compile: the function that the backend wide made of the graph of a backward pass/,
      /float32\[3\] as output 0, which is %\w+, float32\[2\]/,
    );
    refused(
      pass(wide),
      /^compiledAutograd: the function that the compiler wide made of the graph of a backward pass/,
      /float32\[3\] as output 0, which is %\w+, float32\[2\], a gradient/,
    );
    assert.equal(x.shape[0], 2);
  });
});
