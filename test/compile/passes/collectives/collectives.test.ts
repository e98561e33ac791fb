/** What passes that move communication move, and what they leave. */
import assert from 'node:assert/strict';
import {
  captureStep,
  Graph,
  type Node,
  type OverlapOptions,
  raiseCollectives,
  reorderForOverlap,
  sinkWaits,
} from '../../../../lib/compile/index.js';
import { functional } from '../../../../lib/distributed.js';
import {
  ArgumentError,
  autograd,
  dropout,
  library,
  nn,
  ones,
  randn,
  type Tensor,
} from '../../../../lib/index.js';
import { onRanks, valuesOf } from '../../../distributed/support/on-ranks.js';
import { callsIn, nodeNamed } from './programs.js';

const reduced = (t: Tensor): Tensor => functional.allReduce(t, 'sum');

/** Nodes take these times: a product of 64 x 64 about 1 us, an all-reduce of it 20 us. */
const RATES = {
  name: 'test',
  flops: { float32: 0.5e12 },
  memory: 1e12,
  launch: 1e-6,
  links: [{ ranks: 8, latency: 4e-6, bandwidth: 1e9 }],
};

/** Captures a step of one argument on two ranks, and gives each graph to `check`. */
const onGraph = (
  fn: (x: Tensor) => Tensor | Tensor[],
  check: (graph: Graph, rank: number) => void | Promise<void>,
  x: () => Tensor = () => ones([64, 64]),
): Promise<void[]> =>
  onRanks(2, async (rank) => {
    await check(captureStep(fn, [x()]).graph, rank);
  });

/** The calls after a pass. */
const callsAfter = (graph: Graph, pass: (graph: Graph) => unknown): string => {
  pass(graph);
  return callsIn(graph).join(' ');
};

const reorder =
  (options: OverlapOptions = {}) =>
  (graph: Graph) =>
    reorderForOverlap(graph, { rates: RATES, ...options });

describe('raiseCollectives', () => {
  it('starts collectives behind their operands, with views, in their order', async () => {
    await onGraph(
      (x) => {
        const [a, b] = [x.sin(), x.cos()];
        const c = x.matmul(x);
        return [reduced(b.t()), reduced(a), c].map((t) => t.mul(2));
      },
      (graph) => {
        assert.equal(raiseCollectives(graph), 2);
        const calls = callsIn(graph).join(' ');
        assert.match(calls, /^sin cos allReduce allReduce_1 matmul waitTensor/);
        assert.equal(raiseCollectives(graph), 0);
      },
    );
  });

  it('leaves a collective behind writes to its operand, and before writes that come later', async () => {
    await onGraph(
      (x) => {
        const a = x.sin();
        const b = x.cos();
        a.add_(1);
        const c = reduced(a).mul(2);
        a.add_(1);
        return [a, b, c];
      },
      (graph) => {
        assert.match(
          callsAfter(graph, raiseCollectives),
          /^sin cos add allReduce waitTensor mul add_1/,
        );
      },
    );
  });

  it('takes all arguments for one memory where one of them is written', async () => {
    await onRanks(2, async () => {
      const { graph } = captureStep(
        (x: Tensor, y: Tensor) => {
          x.add_(1);
          return reduced(y).mul(2);
        },
        [ones([2]), ones([2])],
      );
      assert.match(callsAfter(graph, raiseCollectives), /^add allReduce/);
    });
  });

  it('passes draws of random numbers, which keep their order', async () => {
    await onGraph(
      (x) => {
        const [a, b] = [dropout(x, 0.5), dropout(x, 0.25)];
        return [reduced(x).add(1), a, b];
      },
      (graph) => {
        const draws = () => graph.nodes.filter(({ effect }) => effect === 'draw');
        const before = draws();
        assert.equal(before.length, 2);
        assert.match(callsAfter(graph, raiseCollectives), /^allReduce dropout/);
        assert.deepEqual(draws(), before);
      },
    );
  });

  it('leaves collectives behind effects that change state', async () => {
    await onGraph(
      (x) => [x.sin(), reduced(x).mul(2)],
      (graph) => {
        const start = nodeNamed(graph, 'allReduce');
        const [placeholder] = graph.placeholders as [Node];
        const inputs = [{ node: placeholder, output: 0 }];
        graph.add({ kind: 'effect', name: 'retainGrad', effect: 'retainGrad', inputs }, start);
        assert.equal(raiseCollectives(graph), 0);
        assert.match(callsIn(graph).join(' '), /^sin allReduce/);
      },
    );
  });

  it('moves ops of the program that communicate as it moves collectives', async () => {
    const sent = library.customOp('overlap::sent', { communicates: true }, (t: Tensor) => t.mul(2));
    sent.registerFake((t) => t);
    await onGraph(
      (x) => {
        const product = x.matmul(x);
        const [first, second] = [sent(x), reduced(x)];
        return [product, first, second.mul(2)];
      },
      (graph) => {
        const calls = callsAfter(graph, raiseCollectives);
        assert.match(calls, /^overlap::sent allReduce matmul/);
      },
    );
  });
});

describe('sinkWaits', () => {
  it('waits before the first use, and for results at the end', async () => {
    await onGraph(
      (x) => {
        const first = reduced(x).add(0);
        const [used, returned] = [reduced(first), reduced(first.mul(3)).t()];
        return [x.sin().add(used), returned];
      },
      (graph) => {
        const calls = callsAfter(graph, sinkWaits);
        assert.match(calls, /allReduce_1 mul allReduce_2 sin waitTensor_2 add_1 waitTensor_1$/);
      },
    );
  });

  it('waits before a node that writes what was received', async () => {
    await onGraph(
      (x) => {
        const received = reduced(x);
        const other = x.sin();
        received.add_(1);
        return [other, received];
      },
      (graph) => {
        assert.match(callsAfter(graph, sinkWaits), /^allReduce sin waitTensor add/);
      },
    );
  });
});

describe('reorderForOverlap', () => {
  /** A product that the collective needs, and three that it does not. */
  const products = (x: Tensor): Tensor[] => {
    const needed = x.matmul(x);
    const others = [x.mul(2), x.mul(3), x.mul(4)].map((t) => t.matmul(t));
    return [...others, reduced(needed).mul(2)];
  };

  it('puts behind a collective what it does not need', async () => {
    await onGraph(products, (graph) => {
      const calls = callsAfter(graph, reorder());
      assert.match(calls, /^matmul allReduce mul .* matmul_3 waitTensor mul_3$/);
    });
  });

  it('leaves in front of a collective what would run longer than it communicates', async () => {
    const slow = { ...RATES, flops: { float32: 1e9 } };
    await onGraph(products, (graph) => {
      assert.match(callsAfter(graph, reorder({ rates: slow })), /matmul_3 allReduce/);
    });
  });

  it('takes what the next collective needs first', async () => {
    await onGraph(
      (x) => {
        const first = reduced(x).mul(2);
        const [other, needed] = [x.matmul(x), x.sin()];
        return [first, other, reduced(needed).mul(2)];
      },
      (graph) => {
        // So much time that the sine alone is hidden.
        const links = [{ ranks: 8, latency: 1e-6, bandwidth: 1e15 }];
        const calls = callsAfter(graph, reorder({ rates: { ...RATES, links } }));
        assert.match(calls, /^allReduce sin (waitTensor|matmul)/);
      },
    );
  });

  it('holds no more memory than allowed', async () => {
    const wide = (x: Tensor): Tensor => {
      let total = reduced(x).sum();
      for (let i = 0; i < 4; i++) total = total.add(x.cos().matmul(x).sum());
      return total;
    };
    const advanced = new Map<number, number>();
    for (const allowanceBytes of [0, 2 ** 20])
      await onGraph(wide, (graph, rank) => {
        const calls = callsAfter(graph, reorder({ allowanceBytes })).split(' ');
        if (rank === 0) advanced.set(allowanceBytes, calls.indexOf('waitTensor'));
      });
    assert.ok((advanced.get(0) as number) < (advanced.get(2 ** 20) as number), `${[...advanced]}`);
    const results = await onRanks(2, async () => {
      const step = captureStep(wide, [ones([8, 8])]);
      reorder({ allowanceBytes: 0 })(step.graph);
      step.module.recompile();
      return valuesOf(step.run(ones([8, 8])));
    });
    assert.deepEqual(results[0], results[1]);
  });

  it('finds one order on ranks whose shards differ in size', async () => {
    const texts = await onRanks(3, async (rank) => {
      const rows = [50, 50, 29];
      const step = captureStep(
        (x: Tensor) => {
          const whole = functional.allGatherTensor(x, 0, undefined, { sizes: rows });
          const own = [x.matmul(x.t()), x.cos(), x.sin()];
          return [whole.sum(), ...own.map((t) => t.sum())];
        },
        [randn([rows[rank] as number, 64])],
      );
      reorder()(step.graph);
      return callsIn(step.graph).join(' ');
    });
    assert.equal(new Set(texts).size, 1, texts.join('\n'));
    assert.match(texts[0] as string, /^allGather matmul /);
  });

  for (const rows of [
    [2, 1],
    [2, 0],
    [3, 2],
  ])
    it(`counts products of rows on ranks with shards of ${rows.join(' and ')}`, async () => {
      await onRanks(2, async (rank) => {
        const step = captureStep(
          (x: Tensor, w: Tensor) => {
            const whole = functional.allGatherTensor(x, 1, undefined, { sizes: rows });
            const [gradient] = autograd.grad(nn.functional.linear(x, w).square().sum(), [w]);
            return [whole.sum(), gradient as Tensor];
          },
          [randn([3, rows[rank] as number, 8]), randn([4, 8]).requiresGrad_()],
        );
        assert.match(callsAfter(step.graph, reorder()), /rowsProduct/);
      });
    });

  it('takes a new order only for the gain that is asked for', async () => {
    await onGraph(products, (graph) => {
      const before = [...graph.nodes];
      assert.equal(reorder({ leastGain: 0.99 })(graph), false);
      assert.deepEqual(graph.nodes, before);
      assert.equal(reorder({ leastGain: 0.01 })(graph), true);
    });
  });

  it('refuses what is no graph, and bad options', () => {
    const graph = new Graph();
    for (const [call, message] of [
      [() => reorderForOverlap(null as never), /expected graph to be a graph/],
      [() => reorderForOverlap(graph, { rates: 'a100' as never }), /h200, h100, cpu or a table/],
      [() => reorderForOverlap(graph, { allowanceBytes: -1 }), /allowanceBytes/],
      [() => reorderForOverlap(graph, { leastGain: 2 }), /leastGain/],
      [() => reorderForOverlap(graph, { donated: [0] }), /donated/],
      [() => reorderForOverlap(graph, { other: 1 } as never), /other/],
    ] as const)
      assert.throws(call, (error: Error) => {
        assert.ok(error instanceof ArgumentError);
        assert.match(error.message, message);
        return true;
      });
  });
});
