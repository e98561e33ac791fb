/** Passes that are given something else than a graph say what they expected. */
import assert from 'node:assert/strict';
import * as compiled from '../../lib/compile/index.js';
import { ArgumentError, ShardwiseError } from '../../lib/index.js';
import * as spmd from '../../lib/spmd/index.js';

const entries = Object.entries({ ...compiled, ...spmd }).filter(
  (entry): entry is [string, (...args: unknown[]) => unknown] =>
    typeof entry[1] === 'function' && !/^class\b/.test(String(entry[1])),
);
const noGraphs: readonly unknown[] = [undefined, null, 5, 'graph', {}, [], () => 1];
/** Functions whose first argument may be anything of these kinds. */
const others = new Set(['reset', 'graphOptimizationPass', 'clearAppliedPasses', 'markRebound']);

describe('a function of graphs', () => {
  for (const [name, fn] of entries) {
    if (others.has(name)) continue;
    it(`says what it expected in the place of a graph: ${name}`, async () => {
      for (const given of noGraphs)
        await (async () => fn(given, given, given))().then(
          () => {},
          (error: unknown) =>
            assert.ok(error instanceof ShardwiseError, `${name}(${String(given)}): ${error}`),
        );
    });
  }

  it('names its argument', () => {
    const { lint, copyGraph, defaultPartition, sinkWaits } = compiled;
    const cases: [() => unknown, RegExp][] = [
      [() => lint({} as never), /lint: expected graph to be a Graph, .*got an object/],
      [() => sinkWaits(null as never), /sinkWaits: expected graph to be a Graph.*got null/],
      [() => copyGraph(new compiled.Graph(), [1] as never), /copyGraph: expected nodes to be/],
      [() => defaultPartition({} as never), /expected joint to be a joint graph/],
      [
        () => spmd.findNode(new compiled.Graph(), 5 as never),
        /expected predicate to be a function/,
      ],
      [
        () => spmd.getCommBlock(new compiled.Graph(), {} as never),
        /expected commNode to be a node/,
      ],
      [() => spmd.findAllDescendants(5 as never, []), /expected module to be an IterGraphModule/],
      [() => new spmd.IterGraph({} as never), /IterGraph: expected from to be a Graph/],
      [
        () => new spmd.IterGraphModule(null as never),
        /IterGraphModule: expected the graph of module to be a Graph/,
      ],
      [
        () => new spmd.IterGraphModule({ graph: 5 } as never),
        /IterGraphModule: expected the graph of module to be a Graph/,
      ],
      [() => spmd.dumpGraphsToFiles({ a: 5 } as never, 'x'), /expected graphs.a to be a Graph/],
    ];
    for (const [call, message] of cases)
      assert.throws(
        call,
        (error: Error) => error instanceof ArgumentError && message.test(error.message),
        String(message),
      );
  });
});
