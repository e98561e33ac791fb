/** Steps, options and blocks that are wrong: errors that begin with the call, or warnings. */
import assert from 'node:assert/strict';
import { compiler } from '../../lib/compile/index.js';
import {
  ArgumentError,
  CompileError,
  ones,
  type optim,
  ShardingError,
  type Tensor,
  tensor,
} from '../../lib/index.js';
import * as spmd from '../../lib/spmd/index.js';
import { warningsOf } from '../compile/warnings.js';
import { onRanks } from '../distributed/support/on-ranks.js';
import { adamOf, type Model, modelOf, trainStep } from './support/fake-step.js';

type AnyStep = (...args: readonly never[]) => unknown;

const x = (rows = 2): Tensor => ones([rows, 4]);
const made = (): [Model, optim.Adam] => {
  const model = modelOf(2, 4);
  return [model, adamOf(model)];
};

/** Runs a step once as spmd.compile does, and returns its error. */
function errorOf(step: AnyStep, args: readonly unknown[], options: spmd.SpmdOptions = {}): Error {
  try {
    (spmd.compile(options)(step) as (...args: readonly unknown[]) => unknown)(...args);
  } catch (error) {
    return error as Error;
  }
  return assert.fail('the step ran');
}

const planned = (
  step: AnyStep,
  args: readonly unknown[],
  options: spmd.PlanOptions = {},
): Error => {
  try {
    const mesh = { shape: [2], meshDimNames: ['dp'] };
    spmd.plan(() => ({ trainStep: step, args }), mesh, { layouts: ['dp'], ...options });
  } catch (error) {
    return error as Error;
  }
  return assert.fail('the step was planned');
};

const gradientsOnly = (model: Model, batch: Tensor): void => model(batch).sum().backward();

describe('a wrong train step', () => {
  it('gets errors that begin with what the program called', () => {
    const reads = (model: Model, _: optim.Adam, batch: Tensor): unknown =>
      model(batch).sum().item();
    const async = async (): Promise<void> => {};
    const dropped = (model: Model, _: optim.Adam, batch: Tensor): void =>
      gradientsOnly(model, batch);
    const two = (model: Model, adam: optim.Adam, _: optim.Adam, batch: Tensor): void =>
      trainStep(model, adam, batch);
    const [model, adam] = made();
    const cases: [AnyStep, unknown[], RegExp][] = [
      [reads as AnyStep, [model, adam, x()], /a value of a tensor/],
      [async as AnyStep, [model, adam, x()], /a synchronous step/],
      [dropped as AnyStep, [model, adam, x()], /does not call its step\(\)/],
      [two as AnyStep, [model, adam, adamOf(model), x()], /are in two optimizers/],
    ];
    for (const [step, args, message] of cases) {
      for (const [caller, error] of [
        ['spmd.compile: ', errorOf(step, args)],
        ['plan: ', planned(step, args)],
      ] as const) {
        assert.match(error.message, message);
        assert.ok(error.message.startsWith(caller), error.message);
      }
    }
  });

  it('that closes over its model is told to pass it', async () => {
    await onRanks(2, () => {
      const [model, adam] = made();
      const error = errorOf((batch: Tensor) => trainStep(model, adam, batch), [x()]);
      assert.ok(error instanceof ShardingError);
      assert.match(error.message, /^spmd\.compile: linear.*got a plain one/);
      assert.match(error.message, /closes over are plain: pass the model, its optimizer/);
    });
  });

  it('that has no optimizer is warned of once, and refused by a plan', async () => {
    const [model] = made();
    const step = spmd.compile()(gradientsOnly);
    const warnings = await warningsOf(() => {
      for (const rows of [2, 2, 3]) step(model, x(rows));
    });
    const [first, ...others] = warnings;
    assert.match(first!, /gradientsOnly computes gradients of 0\.weight, 0\.bias, .*no optimizer/);
    assert.ok(others.every((text) => /captured again/.test(text)));
    assert.match(
      planned(gradientsOnly as AnyStep, made().toSpliced(1, 1, x() as never)).message,
      /^plan: /,
    );
    const outer = adamOf(model);
    const forward = spmd.compile()((net: Model, batch: Tensor) => net(batch));
    const byHand = spmd.compile()((net: Model, batch: Tensor) => {
      gradientsOnly(net, batch);
      outer.step();
    });
    const none = await warningsOf(() => {
      forward(model, x());
      byHand(model, x());
    });
    assert.deepEqual(none, []);
  });

  it('that is planned for another device is refused', () => {
    const error = planned(trainStep as AnyStep, [...made(), x()], { device: 'cuda' });
    assert.ok(error instanceof ArgumentError);
    assert.match(error.message, /^plan: .*on cuda, the device of the plan, got 0\.weight on cpu/);
  });
});

describe('spmd.compile', () => {
  it('says to make a rate a tensor where a number was captured', async () => {
    const [model, adam] = made();
    const step = spmd.compile()(trainStep);
    const group = adam.paramGroups[0] as { lr: number | Tensor };
    const warnings = await warningsOf(() => {
      for (const lr of [0.1, 0.2]) {
        group.lr = lr;
        step(model, adam, x());
      }
    });
    assert.equal(warnings.length, 1);
    assert.match(warnings[0]!, /lr was 0\.1 and is 0\.2\. Make lr a tensor/);
    group.lr = tensor(0.1);
    await warningsOf(() => step(model, adam, x()));
    const none = await warningsOf(() => {
      (group.lr as Tensor).fill_(0.2);
      step(model, adam, x());
    });
    assert.deepEqual(none, []);
  });

  it('captures a step as often as the recompile limit says', async () => {
    const before = compiler.config.recompileLimit;
    compiler.config.recompileLimit = 2;
    try {
      const [model, adam] = made();
      const step = spmd.compile()(trainStep);
      await warningsOf(() => {
        step(model, adam, x(1));
        step(model, adam, x(2));
        assert.throws(
          () => step(model, adam, x(3)),
          (error: Error) =>
            error instanceof CompileError &&
            /^spmd\.compile: trainStep was captured 2 times.*\[1, 4\].*\[2, 4\].*\[3, 4\].*raise compiler\.config/s.test(
              error.message,
            ),
        );
        step(model, adam, x(1));
      });
    } finally {
      compiler.config.recompileLimit = before;
    }
  });

  it('checks what parallelMode.batch is and returns', async () => {
    await onRanks(2, () => {
      const args = [...made(), x()];
      for (const batch of [() => 3, () => [], () => [3], () => null]) {
        const error = errorOf(trainStep as AnyStep, args, {
          parallelMode: { batch: batch as never },
        });
        assert.ok(error instanceof ArgumentError);
        assert.match(error.message, /^spmd\.compile: .*parallelMode\.batch returns for tensor 0/);
      }
    });
    assert.throws(
      () => spmd.compile({ parallelMode: { batch: [] as never } }),
      /a function \(tensor, position\) => placements as batch/,
    );
  });

  it('names a folder that it cannot write graphs to', () => {
    for (const dumpGraphs of ['/proc/nope', '/dev/null/graphs']) {
      const gmTransformation = spmd.GraphModuleTransformation({ dumpGraphs });
      const error = errorOf(trainStep as AnyStep, [...made(), x()], { gmTransformation });
      assert.ok(error instanceof ArgumentError);
      assert.match(error.message, new RegExp(`^dumpGraphs: .* got '${dumpGraphs}': E`));
    }
  });
});

describe('splitFusedOptimizer', () => {
  it('refuses what is no block of the graph, and no list of its gradients', () => {
    const refusals: [
      RegExp,
      (gm: spmd.IterGraphModule, block: spmd.FusedOptimizerBlock) => void,
    ][] = [3, null, undefined, {}, { step: {}, optim: {} }].map((block) => [
      /expected block to be one of getAllFusedOptimizerBlocks/,
      (gm) => spmd.splitFusedOptimizer(gm, block as never, []),
    ]);
    for (const gradients of [undefined, null, 3, {}])
      refusals.push([
        /expected gradients to be a list of values/,
        (gm, block) => spmd.splitFusedOptimizer(gm, block, gradients as never),
      ]);
    for (const gradient of [3, null, {}])
      refusals.push([
        /expected gradients of %adamStepCapturable, got (3|null|an object)/,
        (gm, block) => spmd.splitFusedOptimizer(gm, block, [gradient] as never),
      ]);
    refusals.push([
      /expected a block of this graph, got one of %adamStepCapturable/,
      (gm, block) => {
        const some = block.optim.lists.get('grads')!.slice(1);
        spmd.splitFusedOptimizer(gm, block, some);
        spmd.splitFusedOptimizer(gm, block, some);
      },
    ]);
    for (const [message, split] of refusals) {
      const gmTransformation: spmd.StepTransformation = (module) => {
        const gm = new spmd.IterGraphModule(module);
        split(gm, spmd.getAllFusedOptimizerBlocks(gm)[0]!);
        return gm;
      };
      const error = errorOf(trainStep as AnyStep, [...made(), x()], { gmTransformation });
      assert.ok(error instanceof ArgumentError, String(error));
      assert.match(error.message, message);
    }
  });
});
