/** Timelines of train steps: times by hand, in worlds of any size. */
import assert from 'node:assert/strict';
import { Graph } from '../../../lib/compile/index.js';
import { ArgumentError } from '../../../lib/index.js';
import { IterGraphModule, type Rates, type Timeline, timeline } from '../../../lib/spmd/index.js';
import { type FakeStep, takeFakeStep } from '../support/fake-step.js';
import { timelinesOf } from '../support/passes.js';

const DIM = 512;
const LAYER_BYTES = (DIM * DIM + DIM) * 4;
/** A product of 512 cubed takes a second, the gradients of a layer two; nothing else takes time. */
const rates: Rates = {
  name: 'round numbers',
  flops: { float32: 2 * DIM ** 3 },
  memory: 1e30,
  launch: 0,
  links: [{ ranks: Number.POSITIVE_INFINITY, latency: 0, bandwidth: LAYER_BYTES / 2 }],
};
const twoLayers: FakeStep = { worldSize: 2, layers: 2, dim: DIM, batchSize: DIM };

const near = (actual: number, expected: number, what: string): void =>
  assert.ok(Math.abs(actual - expected) < 1e-9, `${what} is ${actual}, expected ${expected}`);

describe('timelines', () => {
  it('gives times that follow from the rates by hand, before and after each pass', async () => {
    const [before, fused, scheduled, moved] = (await timelinesOf(
      twoLayers,
      (graph) => timeline(graph, { rates }),
      'allReduceFused',
    )) as [Timeline, Timeline, Timeline, Timeline];
    for (const each of [before, fused, scheduled, moved]) {
      near(each.compute, 5, 'compute: two products forward and three backward');
      near(each.communication, 4, 'communication: the gradients of two layers');
      near(each.total, each.compute + each.exposed, 'the total');
    }
    near(before.exposed, 4, 'exposed communication before the passes');
    near(fused.exposed, 4, 'exposed communication after fusion');
    // The first bucket is under way from 4 to 6 s; the last product ends at 5 s, the second bucket at 8 s.
    near(scheduled.exposed, 3, 'exposed communication with late waits');
    // A second is beside the first product of the next iteration, the other bucket ends at 8 s.
    near(moved.exposed, 3, 'exposed communication with a bucket that was moved');
    const buckets = scheduled.entries.filter(({ lane }) => lane === 'communication');
    assert.deepEqual(
      buckets.map(({ name }) => name),
      ['allReduceFused', 'allReduceFused_1'],
    );
    buckets.forEach(({ start, end, bytes }, i) => {
      near(start, 4 + 2 * i, 'start of a bucket');
      near(end, 6 + 2 * i, 'end of a bucket');
      assert.equal(bytes, LAYER_BYTES);
    });
    const waits = scheduled.entries.filter(({ waited }) => waited > 0);
    near(
      waits.reduce((sum, { waited }) => sum + waited, 0),
      3,
      'sum of waits',
    );
  });

  it('simulates worlds of any size from the graph of one rank', async () => {
    const sent = (ranks: number): number => (2 * (ranks - 1)) / ranks;
    await takeFakeStep({ ...twoLayers, worldSize: 4096 }, (module) => {
      const gm = new IterGraphModule(module);
      const latency = 0.5;
      const [link] = rates.links;
      const slow = { ...rates, links: [{ ...link!, latency }] };
      near(timeline(gm.graph, { rates }).communication, 4 * sent(4096), 'of 4096 ranks');
      for (const worldSize of [1, 8, 64]) {
        const { communication } = timeline(gm.graph, { rates: slow, worldSize });
        const latencies = 4 * latency * Math.log2(worldSize);
        near(communication, 4 * sent(worldSize) + latencies, `of ${worldSize} ranks`);
      }
      gm.finalizeSetup();
      return gm;
    });
  });

  it('takes the link that serves the group, and the slowest of launch, memory and products', async () => {
    await takeFakeStep({ ...twoLayers, worldSize: 16 }, (module) => {
      const gm = new IterGraphModule(module);
      const [link] = rates.links;
      const links = [
        { ...link!, ranks: 8 },
        { ...link!, bandwidth: LAYER_BYTES / 20 },
      ];
      const at = (more: Partial<Rates>, worldSize = 8): Timeline =>
        timeline(gm.graph, { rates: { ...rates, links, ...more }, worldSize });
      near(at({}).communication, 4 * 1.75, 'within a machine');
      near(at({}, 16).communication, 40 * 1.875, 'between machines');
      const kernels = at({ launch: 1e-3 }).entries.filter(
        ({ lane, start, end }) => lane === 'compute' && end > start,
      );
      near(at({ launch: 1e-3 }).compute, 5 + (kernels.length - 5) * 1e-3, 'with launches');
      const relu = at({ memory: 2 * DIM * DIM * 4 }).entries.find(({ name }) => name === 'relu')!;
      near(relu.end - relu.start, 1, 'a pointwise node');
      gm.finalizeSetup();
      return gm;
    });
  });

  it('finds less exposed communication after each pass on the step of five layers', async () => {
    for (const [worldSize, device] of [
      [2, 'cpu'],
      [64, 'cuda'],
      [4096, 'cuda'],
    ] as const) {
      const step: FakeStep = { worldSize, layers: 5, dim: 512, batchSize: 20, device };
      const found = await timelinesOf(step, (graph) => timeline(graph), 'allReduceFused_1', 2);
      const [before, fused, scheduled] = found.map(({ exposed }) => exposed) as [
        number,
        number,
        number,
      ];
      assert.ok(before > fused && fused > scheduled, `${before} ${fused} ${scheduled}`);
    }
  });

  it('exposes no more with a moved bucket than with late waits, in worlds of any size', async () => {
    const worlds = Array.from({ length: 10 }, (_, i) => 8 * 2 ** i);
    const step = { worldSize: 4096, layers: 5, dim: 4096, device: 'cuda' } as const;
    for (const [batchSize, smallest] of [
      [4096, 8],
      // Within a machine, backward of few rows hides the bucket, and forward does not.
      [256, 64],
    ] as const) {
      const exposed = (graph: Graph): number[] =>
        worlds
          .filter((ranks) => ranks >= smallest)
          .map((worldSize) => timeline(graph, { worldSize }).exposed);
      const found = await timelinesOf({ ...step, batchSize }, exposed, 'allReduceFused_1');
      const [, , scheduled, moved] = found as [number[], number[], number[], number[]];
      moved.forEach((seconds, i) => {
        assert.ok(seconds <= scheduled[i]!, `${seconds} and ${scheduled[i]}, ${batchSize} rows`);
      });
    }
  });

  it('shows times and nodes as a table, and as a picture', async () => {
    const [, , scheduled] = await timelinesOf(
      twoLayers,
      (graph) => timeline(graph, { rates, title: 'a <step>' }),
      'allReduceFused',
    );
    const text = String(scheduled);
    assert.match(
      text,
      /^a <step> at the rates of round numbers: 8\.00 s, of which kernels 5\.00 s/,
    );
    assert.match(text, /exposed communication 3\.00 s; collectives 4\.00 s/);
    assert.match(text, /4\.00 s +6\.00 s +communication +allReduceFused +1\.00 MiB sent/);
    assert.match(text, /0 +1\.00 s +compute +matmul +0\.268 GFLOP, 3\.00 MiB/);
    const svg = scheduled!.toSvg();
    assert.match(svg, /^<svg xmlns="http:\/\/www.w3.org\/2000\/svg"/);
    assert.match(svg, /a &#60;step&#62;: 8\.00 s, of which 3\.00 s waiting for communication/);
    // The background, five products, two collectives and the waits for them.
    const waits = scheduled!.entries.filter(({ waited }) => waited > 0).length;
    assert.equal(svg.match(/<rect /g)?.length, 1 + 5 + 2 + waits);
  });

  it('refuses what is no graph, unknown options and rates that are none', () => {
    const graph = new Graph();
    const bad = (options: object, message: RegExp): void =>
      assert.throws(
        () => timeline(graph, options as never),
        (error: Error) => error instanceof ArgumentError && message.test(error.message),
      );
    assert.throws(() => timeline({} as never), /expected graph to be a graph/);
    bad({ world: 2 }, /no option "world"/);
    bad({ worldSize: 0 }, /expected worldSize to be/);
    bad({ rates: 'b200' }, /expected rates to be h200, h100, cpu or a table of rates/);
    bad({ rates: { ...rates, memory: -1 } }, /rates\.memory/);
    bad({ rates: { ...rates, flops: {} } }, /rates by dtype, float32 among them/);
    bad({ rates: { ...rates, flops: { float32: 0 } } }, /rates\.flops\.float32/);
    bad({ rates: { ...rates, links: [] } }, /at least one link/);
    bad(
      { rates: { ...rates, links: [...rates.links, ...rates.links] } },
      /in the order of their ranks/,
    );
    bad({ title: 3 }, /expected title to be a string/);
    assert.equal(timeline(graph).total, 0);
    assert.match(timeline(graph).toSvg(), /<\/svg>/);
  });
});
