/** What options of custom ops mean for graphs: parts, memory that calls manage, waits, repetitions. */
import assert from 'node:assert/strict';
import {
  aotAutograd,
  captureStep,
  defaultPartition,
  type GraphModule,
  minCutRematerializationPartition,
  raiseCollectives,
  sinkWaits,
} from '../../lib/compile/index.js';
import {
  ArgumentError,
  autograd,
  compile,
  library,
  noGrad,
  ones,
  type Tensor,
  tensor,
} from '../../lib/index.js';
import { CompileCounterWithBackend } from '../../lib/testing/index.js';

let count = 0;
const fresh = (): string => `options::op${count++}`;

const callsOf = ({ graph }: Pick<GraphModule, 'graph'>): string[] =>
  graph.callNodes.map(({ op, effect }) => op?.name ?? `${effect}`);

const PARTITIONS = { default: defaultPartition, 'min-cut': minCutRematerializationPartition };

/** A backend that keeps the lowered graphs. */
function lowered(partition: keyof typeof PARTITIONS = 'default') {
  const graphs: { forward: string[][]; backward: string[][] } = { forward: [], backward: [] };
  const into = (list: string[][]) => (module: GraphModule) => {
    list.push(callsOf(module));
    return module.forward.bind(module);
  };
  const backend = aotAutograd({
    fwCompiler: into(graphs.forward),
    bwCompiler: into(graphs.backward),
    partitionFn: PARTITIONS[partition],
  });
  return { backend, graphs };
}

describe('the decomposition of a custom op', () => {
  /** sin(x) * k, as a call and in parts, and how often its function ran. */
  function scaledSine() {
    const ran = { count: 0 };
    const op = library
      .customOp(fresh(), { keepsNoTensors: true }, (x: Tensor, k: number) => {
        ran.count++;
        return x.sin().mul(k);
      })
      .registerFake((x) => x)
      .registerDecomposition((x, k) => x.sin().mul(k))
      .registerAutograd({
        setupContext: (_, [, k]) => ({ k }),
        backward: ({ k }, grad) => [grad?.mul(2 * k), null], // not that of the parts
      });
    return { op, ran };
  }

  it('stands in lowered graphs, in place of the call, whose gradient stays', () => {
    const { op, ran } = scaledSine();
    const { backend, graphs } = lowered();
    const compiled = compile((x: Tensor) => op(x, 3).add(1), { backend, fullgraph: true });
    const x = ones([2], { requiresGrad: true });
    const expected = noGrad(() => op(x, 3).add(1)).tolist();
    for (let call = 0; call < 2; call++) {
      x.grad = null;
      const y = compiled(x);
      assert.deepEqual(y.tolist(), expected);
      y.sum().backward();
      assert.deepEqual((x.grad as Tensor | null)?.tolist(), [6, 6]);
    }
    assert.deepEqual(graphs.forward, [['sin', 'mul', 'add']]);
    assert.equal(ran.count, 1);
  });

  it('is one call in graphs that are not lowered, and eagerly', () => {
    const { op, ran } = scaledSine();
    const counter = CompileCounterWithBackend('eager');
    const compiled = compile((x: Tensor) => op(x, 3), { backend: counter, fullgraph: true });
    compiled(ones([2]));
    assert.deepEqual(callsOf({ graph: counter.graphs[0] as GraphModule['graph'] }), [op.opName]);
    assert.equal(ran.count, 1);
    op(ones([2]), 3);
    assert.equal(ran.count, 2);
  });

  it('may give a list, or nothing', () => {
    const pair = library
      .customOp(fresh(), {}, (x: Tensor): Tensor[] => [x.sin(), x.cos()])
      .registerFake((x) => [x, x])
      .registerDecomposition((x) => [x.sin(), x.cos()]);
    const nothing = library
      .customOp(fresh(), { communicates: true }, (_x: Tensor): void => {})
      .registerFake(() => {})
      .registerDecomposition(() => {});
    const { backend, graphs } = lowered();
    const fn = (x: Tensor): Tensor => {
      nothing(x);
      const [a, b] = pair(x) as [Tensor, Tensor];
      return a.add(b);
    };
    const x = tensor([0.5, 2]);
    assert.deepEqual(compile(fn, { backend, fullgraph: true })(x).tolist(), fn(x).tolist());
    assert.deepEqual(graphs.forward, [['sin', 'cos', 'add']]);
  });

  it('is refused if it is no function', () => {
    const op = library.customOp(fresh(), {}, (x: Tensor) => x.clone());
    assert.throws(() => op.registerDecomposition(null as never), ArgumentError);
  });
});

describe('a custom op with communicates', () => {
  /** Starts to make twice `x`, and waits for it: halves of one communication. */
  const start = library
    .customOp(fresh(), { communicates: true }, (x: Tensor) => x.mul(2))
    .registerFake((x) => x);
  const wait = library
    .customOp(fresh(), { communicates: 'wait', managesArgs: [0] }, (x: Tensor) => x)
    .registerFake((x) => x);
  const free = library
    .customOp(fresh(), { communicates: 'frees', managesArgs: [0] }, (_x: Tensor): void => {})
    .registerFake(() => {});

  it('may return memory of its argument', () => {
    const x = ones([2]);
    assert.equal(wait(x).untypedStorage(), x.untypedStorage());
  });

  it("is moved by passes: true as a start, 'wait' as a wait, 'frees' behind readers", () => {
    const fn = (x: Tensor): Tensor => {
      const a = x.sin();
      const begun = start(x);
      const whole = wait(begun);
      const b = a.cos();
      const c = whole.add(b);
      free(whole);
      return c.mul(2);
    };
    const step = captureStep(fn, [ones([2])]);
    const named = (): string[] =>
      callsOf(step).map(
        (name) =>
          ({ [start.opName]: 'start', [wait.opName]: 'wait', [free.opName]: 'free' })[name] ?? name,
      );
    assert.deepEqual(named(), ['sin', 'start', 'wait', 'cos', 'add', 'free', 'mul']);
    raiseCollectives(step.graph);
    assert.deepEqual(named(), ['start', 'sin', 'wait', 'cos', 'add', 'free', 'mul']);
    sinkWaits(step.graph);
    assert.deepEqual(named(), ['start', 'sin', 'cos', 'wait', 'add', 'free', 'mul']);
    step.module.recompile();
    assert.deepEqual(step.run(ones([2])).tolist(), fn(ones([2])).tolist());
  });

  it('refuses other values', () => {
    for (const communicates of ['waits', 1, null])
      assert.throws(
        () => library.customOp(fresh(), { communicates: communicates as never }, () => {}),
        (error: Error) => error instanceof ArgumentError && /communicates/.test(error.message),
      );
  });
});

describe('a custom op with runsAgain', () => {
  /** Twice `x`, whose gradient needs its result, and the arguments with which it was asked. */
  function doubled(again: boolean | undefined) {
    const asked: unknown[] = [];
    const ran = { count: 0 };
    const runsAgain = (...args: unknown[]): boolean => {
      asked.push(args);
      return again === true;
    };
    const op = library
      .customOp(
        fresh(),
        { communicates: true, keepsNoTensors: true, ...(again !== undefined && { runsAgain }) },
        (x: Tensor, _list: readonly Tensor[], _text: string) => {
          ran.count++;
          return x.mul(2);
        },
      )
      .registerFake((x) => x)
      .registerAutograd({ backward: (_, grad) => [grad?.mul(2), [null], null] });
    return { op, asked, ran };
  }

  for (const partition of ['default', 'min-cut'] as const)
    for (const again of [true, false, undefined])
      it(`runs ${again === true ? 'twice' : 'once'} if it says ${again}, partition ${partition}`, () => {
        const { op, asked, ran } = doubled(again);
        const { backend, graphs } = lowered(partition);
        const compiled = compile((x: Tensor) => op(x, [x.detach()], 'a').square(), {
          backend,
          fullgraph: true,
        });
        for (let call = 1; call < 3; call++) {
          const x = tensor([1, 3], { requiresGrad: true });
          const y = compiled(x);
          assert.deepEqual(y.tolist(), [4, 36]);
          y.sum().backward();
          assert.deepEqual(x.grad?.tolist(), [8, 24]);
          assert.equal(ran.count, call * (again === true ? 2 : 1));
        }
        assert.equal(graphs.backward[0]?.includes(op.opName), again === true);
        for (const args of asked) assert.deepEqual(args, [null, [], 'a']);
        assert.equal(asked.length > 0, again !== undefined);
      });

  it('refuses what is no function', () => {
    assert.throws(
      () => library.customOp(fresh(), { runsAgain: true as never }, (x: Tensor) => x),
      (error: Error) => error instanceof ArgumentError && /runsAgain/.test(error.message),
    );
  });
});

describe('a custom op with managesArgs', () => {
  it('leaves the version of the argument as it is', () => {
    const filled = library.customOp(
      fresh(),
      { communicates: true, managesArgs: [0] },
      (memory: Tensor): Tensor => {
        autograd.unsafePreserveVersionCounter(memory, () => void memory.fill_(5));
        return memory;
      },
    );
    const memory = ones([2]);
    const result = filled(memory);
    assert.deepEqual([memory._version, result.tolist()], [0, [5, 5]]);
  });

  it('refuses what are no positions', () => {
    for (const managesArgs of [[-1], [0.5], 0, ['x']])
      assert.throws(
        () => library.customOp(fresh(), { managesArgs: managesArgs as never }, () => {}),
        (error: Error) => error instanceof ArgumentError && /managesArgs/.test(error.message),
      );
  });
});
