/** The ops that the hooks of sharded modules call, as dispatch modes, autograd and graphs see them. */
import assert from 'node:assert/strict';
import {
  CommDebugMode,
  DTensor,
  FullyShardedDataParallel,
  fullyShard,
} from '../../../lib/distributed.js';
import {
  AutogradError,
  autograd,
  compile,
  device,
  float32,
  library,
  nn,
  noGrad,
  ones,
  ShardingError,
  type Tensor,
} from '../../../lib/index.js';
import { type GroupOfOps, unshard } from '../../../lib/parallel/fully-shard/ops.js';
import { CompileCounter, withRanks } from '../../../lib/testing/index.js';
import { batchOf, lossOf, newModel, partOf, sharded } from './model.js';

interface Call {
  readonly op: string;
  readonly numels: readonly number[];
}

/** Calls of ops in `fn` that hooks make, and how many ops there are that communicate by themselves. */
function callsOf(fn: () => void): { calls: Call[]; others: number } {
  const calls: Call[] = [];
  let others = 0;
  library.withDispatchMode((call) => {
    if (call.op.startsWith('fsdp::'))
      calls.push({ op: call.op.slice(6), numels: call.inputs.map((t) => t.numel()) });
    else if (/gather|scatter|reduce/i.test(call.op)) others++;
    return call.run();
  }, fn);
  return { calls, others };
}

const namesOf = (calls: readonly Call[]): string[] => calls.map(({ op }) => op);
const inputOf = (rank: number): Tensor => partOf(batchOf(0), rank, 2);
const gradsOf = async (grads: readonly (Tensor | null)[]): Promise<number[][]> =>
  Promise.all(
    grads.map(async (grad) => [
      ...((await (grad as DTensor).toLocal().reshape([-1]).read()) as Float64Array),
    ]),
  );

describe('the ops of fullyShard', () => {
  it(
    'are one unshard and one reshard for each group in forward, and one postBackward in backward',
    withRanks(2, (rank) => {
      const model = sharded(newModel());
      let loss: Tensor | undefined;
      const forward = callsOf(() => {
        loss = lossOf(model, inputOf(rank));
      });
      // The root keeps its parameters for backward.
      assert.deepEqual(namesOf(forward.calls), [
        'unshard',
        ...Array(2).fill(['unshard', 'reshard']).flat(),
        'endForward',
      ]);
      assert.equal(forward.others, 0);
      const [root, first, freed] = forward.calls as [Call, Call, Call];
      assert.deepEqual(root.numels, [18, 6]);
      assert.deepEqual(first.numels, [60, 10, 30, 3, 3, 3]);
      assert.deepEqual(freed.numels, first.numels);
      const backward = callsOf(() => loss?.backward());
      assert.deepEqual(
        backward.calls.filter(({ op }) => op === 'postBackward'),
        [first, first, root].map(({ numels }) => ({ op: 'postBackward', numels })),
      );
      assert.ok(!namesOf(backward.calls).includes('reshard'));
    }),
  );

  it(
    'are the same for flat parameters, beside one for the views',
    withRanks(2, (rank) => {
      const model = new FullyShardedDataParallel(newModel());
      const { calls } = callsOf(() => lossOf(model, inputOf(rank)).backward());
      assert.deepEqual(namesOf(calls), ['unshard', 'flatViews', 'endForward', 'postBackward']);
    }),
  );

  it(
    'reshard after a forward without gradients, too',
    withRanks(2, (rank) => {
      const linear = fullyShard(new nn.Linear(6, 2).double(), { reshardAfterForward: false });
      const run = (): Tensor => linear(inputOf(rank));
      assert.deepEqual(namesOf(callsOf(run).calls), ['unshard', 'endForward']);
      const { calls } = callsOf(() => noGrad(run));
      assert.deepEqual(namesOf(calls), ['unshard', 'reshard']);
    }),
  );

  it(
    'come once for each use of a module in one graph',
    withRanks(2, (rank) => {
      const linear = fullyShard(new nn.Linear(6, 6).double());
      const x = inputOf(rank);
      const { calls } = callsOf(() => linear(linear(x)).sum().backward());
      assert.deepEqual(namesOf(calls), [
        ...['unshard', 'endForward', 'unshard', 'endForward'],
        ...['postBackward', 'postBackward'],
      ]);
    }),
  );

  it(
    'pass gradients to autograd.grad as to backward, with as many collectives',
    withRanks(2, async (rank) => {
      const model = sharded(newModel());
      const counted = (fn: () => void): unknown => {
        const mode = new CommDebugMode();
        mode.run(fn);
        return mode.getCommCounts();
      };
      const backward = counted(() => lossOf(model, inputOf(rank)).backward());
      const parameters = [...model.parameters()];
      let grads: readonly (Tensor | null)[] = [];
      const grad = counted(() => {
        grads = autograd.grad([lossOf(model, inputOf(rank))], parameters);
      });
      assert.deepEqual(grad, backward);
      assert.ok(grads.every((each) => each instanceof DTensor));
      assert.deepEqual(await gradsOf(grads), await gradsOf(parameters.map((p) => p.grad)));
    }),
  );

  it(
    'give no gradient to frozen parameters of a group',
    withRanks(2, (rank) => {
      const linear = new nn.Linear(6, 2).double();
      linear.bias?.requiresGrad_(false);
      fullyShard(linear);
      let inside: boolean | undefined;
      linear.registerForwardPreHook((each) => {
        inside = each.bias?.requiresGrad;
      });
      const { calls } = callsOf(() => linear(inputOf(rank)).sum().backward());
      assert.equal(inside, false);
      assert.deepEqual(calls.at(-1), { op: 'postBackward', numels: [12] });
      assert.equal(linear.bias?.grad, null);
    }),
  );

  it(
    'have no second derivatives, and say so',
    withRanks(2, (rank) => {
      const linear = fullyShard(new nn.Linear(6, 2).double());
      const loss = linear(inputOf(rank)).square().sum();
      const [grad] = autograd.grad([loss], [linear.weight], { createGraph: true });
      assert.throws(
        () => (grad as Tensor).sum().backward(),
        (error: Error) =>
          error instanceof AutogradError && /Leave out createGraph/.test(error.message),
      );
    }),
  );

  it('are one node of a graph each, with the group as an argument', () => {
    // Guards of the graph would see an array that a run changes.
    const asked = new WeakMap<object, (readonly boolean[])[]>([[ones, []]]);
    const group: GroupOfOps = {
      path: '',
      beginForward: () => {},
      unshardForBackward: () => {},
      finishUnshard: () => [ones([4])],
      wholeMemory: [],
      describeWhole: () => [{ shape: [4], dtype: float32, device: device('cpu') }],
      endForward: () => {},
      reshardsAfterForward: true,
      willReduce: (given) => [...given],
      describeReduced: () => [{ shape: [2], dtype: float32, device: device('cpu') }],
      reduceGradients: (grads) => {
        asked.get(ones)?.push(grads.map((grad) => grad !== null));
        return [grads[0]?.narrow(0, 0, 2).mul(2) ?? null];
      },
      inStep: null,
      distributed: (reduced) => reduced,
      gradientState: () => null,
    };
    const counter = CompileCounter();
    const fn = compile((shard: Tensor) => (unshard([shard], group, false)[0] as Tensor).mul(3), {
      backend: counter,
      fullgraph: true,
    });
    for (let i = 0; i < 2; i++) {
      const shard = ones([2], { requiresGrad: true });
      const whole = fn(shard);
      assert.deepEqual(whole.tolist(), [3, 3, 3, 3]);
      whole.sum().backward();
      assert.deepEqual(shard.grad?.tolist(), [6, 6]);
    }
    assert.deepEqual(asked.get(ones), [[true], [true]]);
    assert.deepEqual([counter.frameCount, counter.opCount], [1, 2]);
    assert.match(String(counter.graphs[0]), /fsdp::unshard/);
  });
});

describe('the backward pass of a compiled model', () => {
  for (const backend of ['aot_eager', 'aot_eager_decomp_partition', 'inductor'] as const)
    for (const sync of [true, false])
      it(
        `refuses that setRequiresGradientSync(${!sync}) comes between it and forward (${backend})`,
        withRanks(2, async (rank) => {
          const model = sharded(newModel());
          const run = compile(model, { backend, fullgraph: true });
          const step = (change: boolean): void => {
            model.setRequiresGradientSync(sync);
            const loss = run(inputOf(rank)).square().sum();
            if (change) model.setRequiresGradientSync(!sync);
            loss.backward();
          };
          step(false);
          model.zeroGrad();
          for (let call = 0; call < 2; call++)
            assert.throws(
              () => step(true),
              (error: Error) =>
                error instanceof ShardingError &&
                new RegExp(
                  `was ${sync ? 'on' : 'off'} in the forward pass of a compiled model, and is ` +
                    `${sync ? 'off' : 'on'}.*Call setRequiresGradientSync before forward`,
                ).test(error.message),
            );
          // The program drops what the failed passes left, as the docs ask.
          model.zeroGrad();
          model.setRequiresGradientSync(true);
          run(inputOf(rank)).square().sum().backward();
          const expected = sharded(newModel());
          compile(expected, { backend, fullgraph: true })(inputOf(rank)).square().sum().backward();
          const grads = [model, expected].map((each) => [...each.parameters()].map((p) => p.grad));
          assert.deepEqual(await gradsOf(grads[0] as []), await gradsOf(grads[1] as []));
        }),
      );
});
