/** A captured train step does, to the bit, what the uncompiled step does. */
import assert from 'node:assert/strict';
import { sameValue } from '../../../lib/compile/graph/node.js';
import { captureStep } from '../../../lib/compile/index.js';
import {
  amp,
  autograd,
  manualSeed,
  memory,
  nn,
  ones,
  optim,
  rand,
  randn,
  type Tensor,
  tensor,
} from '../../../lib/index.js';
import {
  adam,
  captured,
  eager,
  ending,
  type MakeStep,
  Net,
  optimizers,
  stateOf,
  type Training,
  trained,
  training,
} from './train.js';

type Optimizer = optim.Optimizer;

const steps: Record<string, MakeStep> = {
  'sets gradients to null at its end': ending,
  'sets gradients to null first, and leaves its own': (model, optimizer) => (x) => {
    optimizer.zeroGrad();
    model(x).square().mean().backward();
    optimizer.step();
  },
  'accumulates over two passes, and clips': (model, optimizer) => (x) => {
    optimizer.zeroGrad();
    const losses = [x, x.mul(2)].map((each) => model(each).square().mean().div(2));
    for (const loss of losses) loss.backward();
    const norm = nn.utils.clipGradNorm_([...model.parameters()], 0.5);
    optimizer.step();
    return [losses, norm];
  },
  'assigns gradients of autograd.grad': (model, optimizer) => (x) => {
    const params = [...model.parameters()];
    const grads = autograd.grad(model(x).square().mean(), params);
    params.forEach((p, i) => {
      p.grad = grads[i] as Tensor;
    });
    optimizer.step();
  },
  'takes two steps': (model, optimizer) => (x) => {
    const losses = [0, 1].map(() => {
      optimizer.zeroGrad();
      const loss = model(x).square().mean();
      loss.backward();
      optimizer.step();
      return loss;
    });
    return losses;
  },
  'steps by a closure': (model, optimizer) => (x) =>
    optimizer.step(() => {
      optimizer.zeroGrad();
      const loss = model(x).square().mean();
      loss.backward();
      return loss;
    }),
  'computes in mixed precision': (model, optimizer) => (x) => {
    optimizer.zeroGrad();
    const loss = amp.autocast({ deviceType: 'cpu' }, () => model(x).square().mean());
    loss.backward();
    optimizer.step();
    return loss;
  },
  'has a second derivative': (model, optimizer) => (x) => {
    optimizer.zeroGrad();
    const y = x.clone().requiresGrad_();
    const [slope] = autograd.grad(model(y).sum(), [y], { createGraph: true });
    const loss = (slope as Tensor).square().sum();
    loss.backward();
    optimizer.step();
    return loss;
  },
  'has hooks, and keeps the gradient of an intermediate': (model, optimizer) => (x) => {
    optimizer.zeroGrad();
    const y = model(x);
    y.registerHook((grad) => grad.mul(2));
    y.retainGrad();
    y.square().mean().backward();
    optimizer.step();
    return y.grad;
  },
};

describe('captureStep', () => {
  for (const [name, makeStep] of Object.entries(steps))
    it(`replays a step that ${name}`, () => {
      const make = training(adam, makeStep);
      assert.deepEqual(trained(make, captured), trained(make, eager));
    });

  for (const [name, makeOptimizer] of Object.entries(optimizers))
    it(`replays a step of ${name}`, () => {
      const make = training(makeOptimizer, ending);
      assert.deepEqual(trained(make, captured), trained(make, eager));
    });

  it('replays by a plan, or by any function of the graph', () => {
    const make = training(adam, ending);
    const planned = trained(make, (step, x) => {
      const made = captureStep(step, [x]);
      const plan = made.plan();
      return (batch) => made.runWith(plan, batch);
    });
    assert.deepEqual(planned, trained(make, eager));
  });

  it('changes nothing, and leaves state that a first step would make', () => {
    manualSeed(1);
    const { model, optimizer, step } = training(adam, ending)();
    const before = stateOf({ model, optimizer, step }) as { parameters: unknown };
    const random = rand([2]);
    manualSeed(7);
    captureStep(step, [randn([3, 4])]);
    manualSeed(7);
    randn([3, 4]);
    const next = rand([2]).tolist();
    manualSeed(7);
    randn([3, 4]);
    assert.deepEqual(rand([2]).tolist(), next);
    assert.equal(random.numel(), 2);
    const after = stateOf({ model, optimizer, step }) as { parameters: unknown };
    assert.deepEqual(after.parameters, before.parameters);
    for (const p of model.parameters())
      assert.deepEqual(
        Object.entries(optimizer.state.get(p) ?? {}).map(([name, t]) => [
          name,
          (t as Tensor).abs().sum().item(),
        ]),
        [
          ['step', 0],
          ['exp_avg', 0],
          ['exp_avg_sq', 0],
        ],
      );
  });

  it('runs hooks that parameters have, and notices when one is removed', () => {
    const run = (wrap: typeof captured): unknown => {
      const left: unknown[] = [];
      const make = (): Training => {
        const made = training(adam, ending)();
        const { first, last } = made.model as Net;
        const handles = [
          first.weight.registerHook((grad) => grad.mul(3)),
          last.weight.registerPostAccumulateGradHook((p) => void p.grad?.mul_(0.5)),
        ];
        return { ...made, between: (i) => (i === 2 ? left.push(handles.pop()?.remove()) : 0) };
      };
      return trained(make, wrap);
    };
    const recapturing = (step: (x: Tensor) => unknown, x: Tensor): ((x: Tensor) => unknown) => {
      let made = captureStep(step, [x]);
      return (batch) => {
        if (!made.matches(batch)) {
          assert.match(made.difference(batch) ?? '', /the number of hooks of .* was 1 and is 0/);
          made = captureStep(step, [batch]);
        }
        return made.run(batch);
      };
    };
    assert.deepEqual(run(recapturing), run(eager));
    assert.throws(() => run(captured), /the number of hooks of/);
  });

  it('frees the gradients of the step before, by its graph and by a plan', () => {
    const leaving = steps['sets gradients to null first, and leaves its own'] as MakeStep;
    const { step } = training(adam, leaving)();
    const x = randn([3, 4]);
    step(x);
    const made = captureStep(step, [x]);
    const plan = made.plan();
    for (const run of [() => made.run(x), () => made.runWith(plan, x)]) {
      run();
      const before = memory.stats('cpu').liveBlocks;
      for (let i = 0; i < 5; i++) run();
      assert.ok(memory.stats('cpu').liveBlocks <= before);
    }
  });

  it('leaves everything as it was if the step throws, wherever it does', () => {
    for (let place = 0; place < 4; place++) {
      const make = (model: Net, optimizer: Optimizer) => (x: Tensor) => {
        const fail = (at: number): void => {
          if (at === place) throw new RangeError(`at ${at}`);
        };
        fail(0);
        const loss = model(x).square().mean();
        fail(1);
        loss.backward();
        fail(2);
        optimizer.step();
        fail(3);
      };
      const { model, optimizer, step } = training(adam, make)();
      optimizer.paramGroups[0]?.params.forEach((p) => {
        p.grad = ones(p.shape);
      });
      optimizer.step();
      const before = stateOf({ model, optimizer, step });
      assert.throws(() => captureStep(step, [randn([3, 4])]), RangeError);
      assert.deepEqual(stateOf({ model, optimizer, step }), before);
    }
  });

  it('reads a rate that a schedule writes, and rates of several groups', () => {
    const make = (): Training => {
      const model = new Net();
      const [first, ...others] = [...model.parameters()] as [Tensor, ...Tensor[]];
      const optimizer = new optim.AdamW(
        [{ params: [first], lr: tensor(0.3) as unknown as number }, { params: others }],
        { lr: tensor(0.1), capturable: true },
      ) as unknown as Optimizer;
      const schedule = new optim.lrScheduler.StepLR(optimizer, { stepSize: 1, gamma: 0.5 });
      return {
        model,
        optimizer,
        step: ending(model, optimizer),
        between: () => schedule.step(),
      };
    };
    assert.deepEqual(trained(make, captured), trained(make, eager));
  });

  it('names its inputs by their roles, and the gradients of parameters', () => {
    const model = new nn.Linear(2, 1);
    const optimizer = new optim.Adam(model.parameters(), { lr: tensor(0.1), capturable: true });
    const scale = tensor(2);
    const made = captureStep(
      (x: Tensor) => {
        model(x).mul(scale).sum().backward();
        optimizer.step();
        optimizer.zeroGrad();
      },
      [ones([3, 2])],
    );
    assert.deepEqual(
      made.inputs.map(({ role, name }) => `${role}: ${name}`),
      [
        'argument: argument 0',
        'parameter: weight',
        'parameter: bias',
        ...['step', 'exp_avg', 'exp_avg_sq'].flatMap((key) => [
          `state: ${key} of weight`,
          `state: ${key} of bias`,
        ]),
        'rate: lr of group 0 of Adam',
        'other: a tensor from outside',
      ],
    );
    const { weight, bias } = model;
    assert.deepEqual(
      made.inputs.filter(({ role }) => role === 'state').map(({ parameter }) => parameter),
      [weight, bias, weight, bias, weight, bias],
    );
    assert.deepEqual(
      made.inputs.map(({ node }) => node),
      made.graph.placeholders,
    );
    const used = made.graph.callNodes.find(({ name }) => name.startsWith('adamStep'))?.inputs;
    assert.deepEqual(new Set(made.gradients.map(({ owner }) => owner)), new Set([weight, bias]));
    for (const { value, node } of made.gradients) {
      assert.equal(node, null);
      assert.ok(value !== null && used?.some((each) => sameValue(each, value)));
    }
  });

  it('adds to gradients that exist before the step, whose tensors stay the same', () => {
    const make = (): Training => {
      const model = new Net();
      const optimizer = adam(model.parameters());
      for (const p of model.parameters()) p.grad = ones(p.shape);
      const step = (x: Tensor): void => {
        model(x).square().mean().backward();
        optimizer.step();
        optimizer.zeroGrad({ setToNone: false });
      };
      return { model, optimizer, step };
    };
    assert.deepEqual(trained(make, captured), trained(make, eager));
  });
});
