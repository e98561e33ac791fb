/** Which nodes may not change places, where ops fill and free memory that others show. */
import assert from 'node:assert/strict';
import { Dependencies } from '../../../lib/compile/graph/dependencies.js';
import {
  captureStep,
  type Graph,
  type Node,
  raiseCollectives,
  reorderForOverlap,
  sinkWaits,
} from '../../../lib/compile/index.js';
import { fullyShard } from '../../../lib/distributed.js';
import { library, manualSeed, nn, ones, optim, randn, type Tensor } from '../../../lib/index.js';
import { withRanks } from '../../../lib/testing/index.js';

/** Fills memory, and returns windows on it. */
const fill = library
  .customOp(
    'dependencies::fill',
    { communicates: true, managesArgs: [1] },
    (_x: Tensor, memory: Tensor): Tensor[] => [memory.narrow(0, 0, 2), memory.narrow(0, 2, 2)],
  )
  .registerFake(({ dtype, device }) => [
    { shape: [2], dtype, device },
    { shape: [2], dtype, device },
  ]);
const free = library
  .customOp(
    'dependencies::free',
    { communicates: 'frees', managesArgs: [0] },
    (_windows: readonly Tensor[]): void => {},
  )
  .registerFake(() => {});

/** The nodes of a graph with calls of a name, in order. */
const named = (graph: Graph, name: string): Node[] =>
  graph.callNodes.filter((node) => node.op?.name === name);
const only = (graph: Graph, name: string): Node => {
  const [node, ...others] = named(graph, name);
  assert.equal(others.length, 0);
  return node as Node;
};

const graphOf = (fn: (x: Tensor, memory: Tensor) => unknown): Graph =>
  captureStep(fn as never, [ones([2]), ones([4])]).graph;

describe('dependencies', () => {
  it('keep what reads a result of an op that manages memory on its side of the next one', () => {
    const graph = graphOf((x, memory) => {
      const first = fill(x, memory) as [Tensor, Tensor];
      const a = first[0].sin();
      free(first);
      const second = fill(x, memory) as [Tensor, Tensor];
      return [a, second[1].view([2, 1]).cos(), x.exp()];
    });
    const dependencies = new Dependencies(graph);
    const [fill1, fill2] = named(graph, 'dependencies::fill') as [Node, Node];
    const [sin, cos, exp] = ['sin', 'cos', 'exp'].map((name) => only(graph, name)) as Node[];
    const freed = only(graph, 'dependencies::free');
    for (const [first, second] of [
      [fill1, sin],
      [sin, freed],
      [sin, fill2],
      [fill1, freed],
      [freed, fill2],
      [freed, cos], // another window, and a view of one
      [fill2, cos],
    ] as [Node, Node][])
      assert.notEqual(dependencies.conflict(first, second), null, `${first} before ${second}`);
    for (const node of [fill1, freed, fill2])
      assert.equal(dependencies.conflict(node, exp as Node), null);
    assert.equal(dependencies.conflict(sin as Node, cos as Node), null);
  });

  it('take all windows for one memory, which the op writes and does not change', () => {
    const graph = graphOf((x, memory) => {
      const [a, b] = fill(x, memory) as [Tensor, Tensor];
      return a.add(b);
    });
    const dependencies = new Dependencies(graph);
    const node = only(graph, 'dependencies::fill');
    const [, memory] = graph.placeholders as [Node, Node];
    const whole = dependencies.memoryOf({ node: memory, output: 0 });
    for (const output of [0, 1]) assert.equal(dependencies.memoryOf({ node, output }), whole);
    assert.deepEqual([...dependencies.writtenBy(node)], [whole]);
    assert.deepEqual(dependencies.changedBy(node), []);
    assert.deepEqual([...dependencies.readBy(only(graph, 'add'))], [whole]);
    const conflict = dependencies.conflict(node, only(graph, 'add'));
    assert.deepEqual([conflict?.firstWrites, conflict?.secondWrites], [true, false]);
  });

  it('name what reads memory that an op manages among its readers, also behind it', () => {
    const graph = graphOf((x, memory) => {
      const [a] = fill(x, memory) as [Tensor, Tensor];
      const b = a.sin();
      free([a]);
      return [b, memory.cos()];
    });
    const dependencies = new Dependencies(graph);
    const readers = dependencies.readers(only(graph, 'dependencies::free'));
    assert.deepEqual(readers, [only(graph, 'cos')]);
  });
});

class Blocks extends nn.Module<[x: Tensor], Tensor> {
  blocks = [0, 1, 2].map(() => new nn.Linear(8, 8));
  list = new nn.ModuleList(this.blocks);
  forward(x: Tensor): Tensor {
    let y = x;
    for (const block of this.blocks) y = block(y).relu();
    return y;
  }
}

/** A captured step of a model of three groups and a root. */
function shardedStep() {
  manualSeed(1);
  const model = new Blocks();
  for (const block of model.blocks) fullyShard(block);
  fullyShard(model);
  const sgd = new optim.SGD(model.parameters(), { lr: 0.1, capturable: true });
  return captureStep(
    (x: Tensor) => {
      const loss = model(x).square().mean();
      loss.backward();
      sgd.step();
      sgd.zeroGrad();
      return loss;
    },
    [randn([3, 8])],
  );
}

/** For each node that reads memory of whole parameters: the nodes that managed it before. */
function managersBefore(graph: Graph, order: readonly Node[]): Map<Node, Node[]> {
  const dependencies = new Dependencies(graph);
  const isManager = (node: Node): boolean =>
    node.effect === 'callOpaque' || (node.op?.manages ?? null) !== null;
  const managers = graph.nodes.filter(isManager);
  const found = new Map<Node, Node[]>();
  for (const node of graph.nodes) {
    const read = dependencies.readBy(node);
    const own = managers.filter((manager) =>
      [...dependencies.writtenBy(manager)].some((memory) => read.has(memory)),
    );
    if (own.length > 0 && !isManager(node))
      found.set(
        node,
        own.filter((manager) => order.indexOf(manager) < order.indexOf(node)),
      );
  }
  return found;
}

const PASSES: Readonly<Record<string, (graph: Graph) => unknown>> = {
  raiseCollectives,
  sinkWaits,
  reorderForOverlap: (graph) =>
    reorderForOverlap(graph, { rates: 'h200', allowanceBytes: 1 << 30 }),
  'all of them': (graph) => {
    raiseCollectives(graph);
    sinkWaits(graph);
    reorderForOverlap(graph, { rates: 'h200', allowanceBytes: 1 << 30 });
  },
};

describe('passes over the step of a sharded model', () => {
  for (const [name, pass] of Object.entries(PASSES))
    it(
      `leave readers of whole parameters between the same gathers and frees (${name})`,
      withRanks(2, () => {
        const { graph } = shardedStep();
        const before = managersBefore(graph, [...graph.nodes]);
        const names = (node: Node): string => `${node.op?.name ?? node.effect}`;
        const managed = new Set([...before.values()].flat().map(names));
        for (const op of ['finishUnshard', 'reshard', 'postBackward'])
          assert.ok(managed.has(`fsdp::${op}`), [...managed].join(' '));
        const order = [...graph.nodes];
        pass(graph);
        assert.ok(
          order.some((node, i) => node !== graph.nodes[i]),
          'the pass moves nodes',
        );
        const after = managersBefore(graph, [...graph.nodes]);
        for (const [reader, those] of before)
          assert.deepEqual(
            new Set(after.get(reader)?.map(String)),
            new Set(those.map(String)),
            String(reader),
          );
      }),
    );
});
