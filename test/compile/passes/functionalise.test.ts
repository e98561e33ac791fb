/** A graph without in-place calls computes what it computed with them. */
import assert from 'node:assert/strict';
import fc from 'fast-check';
import { recording } from '../../../lib/compile/capture/levels.js';
import { Recorder } from '../../../lib/compile/capture/recorder.js';
import { lint } from '../../../lib/compile/graph/lint.js';
import { GuardCollector } from '../../../lib/compile/guards/guard-collector.js';
import {
  defaultPartition,
  eliminateDeadCode,
  type Graph,
  minCutRematerializationPartition,
} from '../../../lib/compile/index.js';
import { functionalise } from '../../../lib/compile/passes/functionalise.js';
import { noGrad, rand, scope, type Tensor, zeros } from '../../../lib/index.js';
import { assertFaithful, assertSame, jointOf, runGraph } from '../partition/joint-graphs.js';
import { programs } from '../partition/random-programs.js';

function recorded(fn: (...args: Tensor[]) => Tensor[], args: Tensor[]): Graph {
  return noGrad(() => {
    const recorder = new Recorder(new GuardCollector(), 'lowered');
    try {
      return recording(recorder, () => {
        args.forEach((t, i) => {
          recorder.placeholder(t, i);
        });
        recorder.graph.outputs = fn(...args).map((t) => recorder.valueOf(t));
        return recorder.graph;
      });
    } finally {
      recorder.restore();
    }
  });
}

const inPlace = (graph: Graph): string[] =>
  graph.callNodes.filter((n) => n.into !== null).map((n) => n.op?.name ?? '');

/** Compares the results, and the arguments after the run. Returns the graph without dead code. */
function assertUnchanged(fn: (...args: Tensor[]) => Tensor[], args: Tensor[]): Graph {
  const [given, before] = [args, args].map((list) => list.map((t) => t.clone()));
  const graph = recorded(fn, args);
  const expected = runGraph(graph, before as Tensor[]);
  functionalise(graph);
  lint(graph);
  eliminateDeadCode(graph);
  assertSame(runGraph(graph, given as Tensor[]), expected);
  assertSame(given as Tensor[], before as Tensor[]);
  return graph;
}

const x = (): Tensor => rand([3, 3]).sub(0.5);

type Change = (t: Tensor, by: Tensor) => unknown;
/** Views of 3 x 3 matrices that have 3 x 3 elements again, or fewer. */
const views: ((t: Tensor) => Tensor)[] = [
  (t) => t,
  (t) => t.t(),
  (t) => t.reshape(-1).view([3, 3]),
  (t) => t.unsqueeze(0).transpose(1, 2).squeeze(0),
  (t) => t.detach(),
  (t) => t.select(0, 1),
  (t) => t.slice(1, 1),
  (t) => t.diagonal(),
];
const changes: Change[] = [
  (t, by) => t.add_(by.sum()),
  (t) => t.mul_(2),
  (t) => t.sin_(),
  (t, by) => t.copy_(by.sum()),
  (t) => t.zero_(),
  (t, by) => (t.numel() === 9 ? t.copy_(by) : t.neg_()),
  (t, by) => (t.numel() === 9 ? t.add_(by.t()) : t.sub_(1)),
  (t) => t.clamp_({ max: 0.2 }),
];

describe('functionalise', () => {
  it('leaves the results of random programs with views and in-place changes as they are', () => {
    const step = fc.tuple(
      fc.nat(3),
      fc.nat(20),
      fc.nat(views.length - 1),
      fc.nat(20),
      fc.nat(changes.length - 1),
    );
    let total = 0;
    fc.assert(
      fc.property(
        fc.array(step, { minLength: 1, maxLength: 10 }),
        fc.array(fc.nat(20)),
        (steps, out) =>
          scope(() => {
            const fn = (...args: Tensor[]): Tensor[] => {
              const made = [...args];
              const pick = (i: number): Tensor => made[i % made.length] as Tensor;
              for (const [kind, a, view, b, change] of steps) {
                const seen = (views[view] as (t: Tensor) => Tensor)(pick(a));
                if (kind === 0) made.push(pick(a).mul(pick(b).sum()));
                else if (kind === 1 && seen.numel() === 9) made.push(seen);
                else {
                  const by = pick(b);
                  if (by.storage !== seen.storage) (changes[change] as Change)(seen, by);
                }
              }
              return [made.at(-1) as Tensor, ...out.map(pick)];
            };
            const graph = assertUnchanged(fn, [x(), x()]);
            total += inPlace(graph).length;
          }),
      ),
      { numRuns: 300 },
    );
    assert.ok(total > 0, 'all programs wrote into whole tensors only');
  });

  it('rewrites changes of whole tensors, and makes views of them again', () => {
    const graph = assertUnchanged(
      (a) => {
        const b = a.add(1);
        const view = b.select(0, 0);
        b.mul_(2);
        b.t().sin_();
        return [b, view.add(1)];
      },
      [x()],
    );
    assert.deepEqual(inPlace(graph), []);
  });

  it('makes views again that were made between two changes', () => {
    const graph = assertUnchanged(
      (a) => {
        const b = a.add(1);
        b.mul_(2);
        const view = b.t();
        b.sin_();
        view.select(0, 1).add_(1);
        b.mul_(3);
        return [view.add(1), b];
      },
      [x()],
    );
    assert.deepEqual(inPlace(graph), ['add']);
  });

  it('rewrites a copy into fresh memory as the copy', () => {
    const graph = assertUnchanged((a) => [zeros([3, 3]).copy_(a)], [x()]);
    assert.deepEqual(inPlace(graph), []);
    assert.ok(!graph.callNodes.some((n) => n.op?.name === 'full'));
  });

  it('leaves changes of inputs and of parts in place', () => {
    const one = (fn: (a: Tensor) => Tensor): string[] =>
      inPlace(assertUnchanged((a) => [fn(a)], [x()]));
    assert.deepEqual(
      one((a) => a.mul_(2)),
      ['mul'],
    );
    assert.deepEqual(
      one((a) => {
        const b = a.add(1);
        b.select(0, 1).mul_(2);
        return b;
      }),
      ['mul'],
    );
  });

  it('keeps results that share memory on one memory', () => {
    const graph = recorded(
      (a) => {
        const b = a.add(1);
        const view = b.t();
        b.mul_(2);
        return [b, view];
      },
      [x()],
    );
    functionalise(graph);
    const [b, view] = runGraph(graph, [x()]) as [Tensor, Tensor];
    assert.equal(b.storage, view.storage);
  });

  it('leaves the values and gradients of random joint graphs as they are', () => {
    fc.assert(
      fc.property(programs, ({ program }) =>
        scope(() => {
          const args = [x(), x(), x()].map((t) => t.requiresGrad_());
          for (const partition of [defaultPartition, minCutRematerializationPartition])
            assertFaithful(program, args, (joint) => {
              functionalise(joint.graph);
              return partition(joint);
            });
        }),
      ),
      { numRuns: 25 },
    );
  }).timeout(60_000);

  it('lets backward compute again what was changed in place', () => {
    const fn = (a: Tensor): Tensor => a.add(1).mul_(2).sin().sin();
    const joint = jointOf(fn, [x().requiresGrad_()]);
    functionalise(joint.graph);
    const saved = minCutRematerializationPartition(joint).saved.map(({ node }) => node.kind);
    assert.deepEqual(saved, ['placeholder']);
  });
});
