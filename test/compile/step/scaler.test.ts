/** Captured steps with a scaler of the loss, whose state is tensors. */
import assert from 'node:assert/strict';
import { captureStep } from '../../../lib/compile/index.js';
import {
  DTensor,
  distributeTensor,
  fullyShard,
  initDeviceMesh,
  Shard,
} from '../../../lib/distributed.js';
import {
  AmpError,
  amp,
  CompileError,
  manualSeed,
  nn,
  ones,
  optim,
  randn,
  type Tensor,
  tensor,
} from '../../../lib/index.js';
import { withRanks } from '../../../lib/testing/index.js';

const makers: Record<string, (params: Iterable<Tensor>) => optim.Optimizer> = {
  SGD: (params) =>
    new optim.SGD(params, { lr: 0.1, momentum: 0.9, capturable: true }) as optim.Optimizer,
  Adam: (params) =>
    new optim.Adam(params, { lr: 0.1, amsgrad: true, capturable: true }) as optim.Optimizer,
  'AdamW in plain ops': (params) =>
    new optim.AdamW(params, { lr: 0.1, foreach: false, capturable: true }) as optim.Optimizer,
};

const factors = [1, Number.NaN, 1, 1, Number.POSITIVE_INFINITY, 1, 1, 1];

/** A parameter with an optimizer and a scaler of its own. */
function scaled() {
  const w = tensor([1], { requiresGrad: true });
  const optimizer = new optim.SGD([w], { lr: 0.1, capturable: true });
  return { w, optimizer, scaler: new amp.GradScaler({ device: 'cpu', initScale: 8 }) };
}

describe('a captured step with a GradScaler', () => {
  for (const [name, make] of Object.entries(makers))
    for (const [how, run] of [
      ['run', false],
      ['plan', true],
    ] as const)
      it(`skips, lowers and grows as eagerly: ${name}, by ${how}`, () => {
        const train = (isCaptured: boolean): unknown => {
          manualSeed(1);
          const model = new nn.Linear(3, 2);
          const optimizer = make(model.parameters());
          const scaler = new amp.GradScaler({ device: 'cpu', initScale: 8, growthInterval: 2 });
          const step = (x: Tensor): Tensor => {
            const loss = model(x).square().mean();
            scaler.scale(loss).backward();
            scaler.unscale_(optimizer);
            nn.utils.clipGradNorm_([...model.parameters()], 0.5);
            scaler.step(optimizer);
            scaler.update();
            optimizer.zeroGrad();
            return loss.detach();
          };
          const made = isCaptured ? captureStep(step, [ones([2, 3])]) : null;
          const plan = run ? made?.plan() : undefined;
          return factors.map((factor) => {
            const x = ones([2, 3]).mul(factor);
            if (made === null) step(x);
            else if (plan === undefined) made.run(x);
            else made.runWith(plan, x);
            const states = [...model.parameters()].flatMap((p) =>
              Object.values(optimizer.state.get(p) ?? {}).map((t) => (t as Tensor).tolist()),
            );
            return [model.weight.tolist(), states, scaler.stateDict()];
          });
        };
        assert.deepEqual(train(true), train(false));
      });

  it('goes on from a state that was loaded, and is captured again after another growth', () => {
    const { w, optimizer, scaler } = scaled();
    const captured = captureStep(() => {
      scaler.scale(w.sum()).backward();
      scaler.step(optimizer);
      scaler.update();
      optimizer.zeroGrad();
    }, []);
    captured.run();
    const state = scaler.stateDict() as amp.GradScalerState;
    assert.deepEqual([state.scale, state._growth_tracker], [8, 1]);
    scaler.loadStateDict({ ...state, scale: 32, _growth_tracker: 5 });
    captured.run();
    const next = scaler.stateDict() as amp.GradScalerState;
    assert.deepEqual([next.scale, next._growth_tracker], [32, 6]);
    scaler.loadStateDict({ ...state, growth_interval: 2 });
    assert.throws(() => captured.run(), /growthInterval of GradScaler was 2000 and is 2\./);
  });

  it('has its update, too', () => {
    const { w, optimizer, scaler } = scaled();
    const captured = captureStep(() => {
      scaler.scale(w.sum()).backward();
      scaler.step(optimizer);
    }, []);
    captured.run();
    assert.throws(
      () => scaler.update(),
      (error: Error) =>
        error instanceof AmpError && /A captured step calls both/.test(error.message),
    );
  });

  it('reads nothing: neither the factor, nor for an optimizer that needs a value', () => {
    const w = tensor([1], { requiresGrad: true });
    const scaler = new amp.GradScaler({ device: 'cpu', initScale: 8 });
    const own = { paramGroups: [{ params: [w] }], step: () => undefined };
    for (const call of [() => scaler.getScale(), () => scaler.stateDict(), () => scaler.step(own)])
      assert.throws(() => captureStep(call, []), CompileError);
  });

  it('skips the steps of all ranks that share it', () =>
    withRanks(2, async () => {
      for (const shards of ['fullyShard', 'DTensor'] as const) {
        const train = async (isCaptured: boolean): Promise<unknown> => {
          manualSeed(1);
          const model = new nn.Linear(3, 2);
          const mesh = initDeviceMesh('cpu', [2]);
          if (shards === 'fullyShard') fullyShard(model);
          else
            model.weight = new nn.Parameter(
              distributeTensor(model.weight.detach(), mesh, [Shard(0)]),
            );
          if (shards === 'DTensor')
            model.bias = new nn.Parameter(
              distributeTensor((model.bias as Tensor).detach(), mesh, [Shard(0)]),
            );
          const optimizer = new optim.Adam(model.parameters(), { lr: 0.1, capturable: true });
          const scaler = new amp.GradScaler({ device: 'cpu', initScale: 8, growthInterval: 2 });
          const step = (x: Tensor): void => {
            scaler.scale(model(x).square().mean()).backward();
            scaler.step(optimizer);
            scaler.update();
            optimizer.zeroGrad();
          };
          const given = (factor: number): Tensor => {
            const x = randn([2, 3]).mul(factor);
            return shards === 'fullyShard' ? x : DTensor.fromLocal(x, mesh);
          };
          const captured = isCaptured ? captureStep(step, [given(1)]) : null;
          manualSeed(2);
          const seen: unknown[] = [];
          for (const factor of factors) {
            const x = given(factor);
            if (captured === null) step(x);
            else captured.run(x);
            const whole = await (model.weight as DTensor).fullTensor().read();
            seen.push([...whole], await scaler.getScaleAsync());
          }
          return seen;
        };
        assert.deepEqual(await train(true), await train(false));
      }
    })());
});
