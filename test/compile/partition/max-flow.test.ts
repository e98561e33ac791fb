/** The minimum cut of a network equals the best of all cuts. */
import assert from 'node:assert/strict';
import fc from 'fast-check';
import { FlowNetwork } from '../../../lib/compile/partition/max-flow.js';

type Edge = readonly [from: number, to: number, capacity: number];

function solved(vertices: number, edges: readonly Edge[]) {
  const network = new FlowNetwork();
  for (let i = 0; i < vertices; i++) network.addVertex();
  for (const [from, to, capacity] of edges) network.addEdge(from, to, capacity);
  return network.minCut(0, vertices - 1);
}

/** The capacity of the edges that leave a side. */
function capacityOf(edges: readonly Edge[], inside: (vertex: number) => boolean): number {
  return edges
    .filter(([from, to]) => inside(from) && !inside(to))
    .reduce((sum, [, , capacity]) => sum + capacity, 0);
}

/** The least capacity of all cuts. */
function leastCut(vertices: number, edges: readonly Edge[]): number {
  let least = Number.POSITIVE_INFINITY;
  for (let side = 0; side < 2 ** (vertices - 2); side++)
    least = Math.min(
      least,
      capacityOf(edges, (v) => v === 0 || (v < vertices - 1 && ((side >> (v - 1)) & 1) === 1)),
    );
  return least;
}

const network = fc.integer({ min: 2, max: 8 }).chain((vertices) => {
  const vertex = fc.nat(vertices - 1);
  const capacity = fc.oneof(fc.nat(9), fc.constant(Number.POSITIVE_INFINITY));
  return fc.record({
    vertices: fc.constant(vertices),
    edges: fc.array(fc.tuple(vertex, vertex, capacity), { maxLength: 24 }),
  });
});

describe('the minimum cut of a network', () => {
  it('has the capacity of the best of all cuts, and separates the sink', () => {
    fc.assert(
      fc.property(network, ({ vertices, edges }) => {
        const { flow, sourceSide } = solved(vertices, edges);
        assert.equal(flow, leastCut(vertices, edges));
        if (flow === Number.POSITIVE_INFINITY) return;
        assert.deepEqual([sourceSide[0], sourceSide[vertices - 1]], [true, false]);
        assert.equal(
          capacityOf(edges, (v) => sourceSide[v] === true),
          flow,
        );
      }),
      { numRuns: 1000 },
    );
  });

  it('is the one closest to the source, where several have the same capacity', () => {
    assert.deepEqual(
      solved(3, [
        [0, 1, 4],
        [1, 2, 4],
      ]).sourceSide,
      [true, false, false],
    );
  });

  it('is found in a path of 100,000 edges', () => {
    const edges = Array.from({ length: 100_000 }, (_, i): Edge => [i, i + 1, i === 700 ? 3 : 5]);
    const { flow, sourceSide } = solved(100_001, edges);
    assert.equal(flow, 3);
    assert.equal(sourceSide.indexOf(false), 701);
  });
});
