/** Optimizers refuse invalid options, groups, and states of other parameters. */
import assert from 'node:assert/strict';
import {
  ArgumentError,
  float64,
  nn,
  ones,
  optim,
  type Tensor,
  tensor,
  zeros,
} from '../../lib/index.js';

function parameter(...values: number[]): nn.Parameter {
  const p = new nn.Parameter(tensor(values));
  p.grad = ones([values.length]);
  return p;
}
const refuses = (make: () => unknown, message: RegExp): void =>
  assert.throws(
    make,
    (error: Error) => error instanceof ArgumentError && message.test(error.message),
  );
const makers: Record<string, (options: object) => optim.Optimizer> = {
  SGD: (options) => new optim.SGD([parameter(1, 2)], options) as optim.Optimizer,
  Adam: (options) => new optim.Adam([parameter(1, 2)], options) as optim.Optimizer,
  AdamW: (options) => new optim.AdamW([parameter(1, 2)], options) as optim.Optimizer,
};

const common: [object, RegExp][] = [
  [{ lr: -1 }, /expected lr to be a finite number from 0, got -1/],
  [{ lr: Number.NaN }, /got NaN/],
  [{ lr: '0.1' }, /got '0.1'/],
  [{ lr: null }, /got null/],
  [{ weightDecay: -0.1 }, /weightDecay/],
  [{ maximize: 'no' }, /expected maximize to be true or false, got 'no'/],
  [{ foreach: 1 }, /expected foreach to be true, false or null, got 1/],
  [{ fused: true, foreach: true }, /fused and foreach cannot both be true/],
  [{ learningRate: 1 }, /there is no option "learningRate"; options are lr, /],
];
const adam: [object, RegExp][] = [
  [{ eps: -1 }, /eps/],
  [{ betas: [0.9, 1] }, /betas\[1\] to be a finite number from 0 below 1, got 1/],
  [{ betas: 0.9 }, /betas to be two numbers, got 0.9/],
  [{ amsgrad: 1 }, /amsgrad/],
];
const refused: Record<string, [object, RegExp][]> = {
  SGD: [
    ...common,
    [{ momentum: -1 }, /momentum/],
    [{ dampening: Number.NaN }, /dampening/],
    [{ nesterov: true }, /nesterov needs a momentum/],
  ],
  Adam: [...common, ...adam],
  AdamW: [...common, ...adam],
};

describe('the options of an optimizer', () => {
  for (const [name, list] of Object.entries(refused)) {
    const make = makers[name] as (typeof makers)[string];
    for (const [options, message] of list)
      it(`are checked by ${name} for ${JSON.stringify(options)}: ${message.source}`, () =>
        refuses(() => make(options), message));

    it(`count as not given in ${name} if they are undefined`, () => {
      assert.equal(make({ lr: undefined }).paramGroups[0]?.['lr'], 1e-3);
    });

    it(`out of range in a state are refused by ${name}, which stays unchanged`, () => {
      const optimizer = make({ lr: 0.5 });
      optimizer.step();
      const state = optimizer.stateDict();
      const [group] = state.param_groups;
      refuses(
        () => optimizer.loadStateDict({ ...state, param_groups: [{ ...group, lr: -5 } as never] }),
        /expected lr to be a finite number from 0, got -5/,
      );
      refuses(
        () =>
          optimizer.loadStateDict({ ...state, param_groups: [{ ...group, params: [] } as never] }),
        /groups of 0 parameters, the optimizer of 1/,
      );
      refuses(
        () => optimizer.loadStateDict({ ...state, state: { 1: {} } }),
        /state for parameter 1, which no group has/,
      );
      refuses(
        () => optimizer.loadStateDict({ ...state, state: { 0: { more: 1 } } }),
        /the state of parameter 0 has "more"; expected only/,
      );
      refuses(() => optimizer.loadStateDict({} as never), /state and param_groups/);
      refuses(() => optimizer.loadStateDict(null as never), /got null/);
      assert.equal(optimizer.paramGroups[0]?.['lr'], 0.5);
      assert.deepEqual(optimizer.stateDict(), state);
    });
  }

  it('require lists and groups, and a group may have one tensor', () => {
    refuses(
      () => new optim.SGD(undefined as never),
      /params to be a list of parameters or of groups, such as model\.parameters\(\), got undefined/,
    );
    refuses(() => new optim.SGD([3 as never]), /the group to be an object with params, got 3/);
    refuses(() => new optim.SGD([{ lr: 1 } as never]), /object with params/);
    refuses(
      () => new optim.SGD([parameter(1)]).step(3 as never),
      /closure to be a function, got 3/,
    );
    const p = parameter(1, 2);
    assert.deepEqual(new optim.SGD([{ params: p }]).paramGroups[0]?.params, [p]);
  });
});

describe('the state of an optimizer', () => {
  const stepped = (options: object = {}): optim.Adam => {
    const optimizer = new optim.Adam([parameter(1, 2)], options);
    optimizer.step();
    return optimizer;
  };
  type State = Record<string, Tensor | number>;
  const stateOf = (optimizer: optim.Optimizer | optim.Adam): State =>
    [...optimizer.state.values()][0] as State;

  it('is refused by Adam if an entry is missing, has another shape or is not a count', () => {
    const optimizer = stepped();
    const load = (change: (state: State) => void): void => {
      const given = stepped().stateDict();
      change(given.state[0] as State);
      optimizer.loadStateDict(given);
    };
    refuses(
      () => load((s) => delete s['exp_avg']),
      /exp_avg in the state of parameter 0 to be a tensor, got undefined/,
    );
    refuses(
      () => load((s) => Object.assign(s, { exp_avg_sq: zeros([3]) })),
      /exp_avg_sq in the state of parameter 0 to be of shape \[2\], got \[3\]/,
    );
    refuses(() => load((s) => Object.assign(s, { step: -1 })), /step in the state of parameter 0/);
    refuses(() => load((s) => delete s['step']), /step/);
    load((s) => Object.assign(s, { step: tensor(7), exp_avg: zeros([2], { dtype: float64 }) }));
    assert.equal(stateOf(optimizer)['step'], 7);
    assert.equal((stateOf(optimizer)['exp_avg'] as Tensor).dtype.name, 'float32');
    delete stateOf(optimizer)['exp_avg'];
    refuses(() => optimizer.step(), /Adam: the state of a parameter has no exp_avg/);
  });

  it('gets a maximum of 0 if amsgrad is turned on later', () => {
    const [plain, later] = [stepped(), stepped()];
    (later.paramGroups[0] as { amsgrad: boolean }).amsgrad = true;
    for (const optimizer of [plain, later]) optimizer.step();
    assert.deepEqual(
      (stateOf(later)['max_exp_avg_sq'] as Tensor).tolist(),
      (stateOf(later)['exp_avg_sq'] as Tensor).tolist(),
    );
    const other = stepped({ amsgrad: true });
    other.loadStateDict({ ...plain.stateDict(), param_groups: other.stateDict().param_groups });
    other.step();
    assert.ok(stateOf(other)['max_exp_avg_sq']);
  });

  it('starts the momentum of SGD if the state has none', () => {
    const [p, q] = [parameter(1), parameter(1)];
    const [a, b] = [
      new optim.SGD([p], { lr: 1, momentum: 0.5 }),
      new optim.SGD([q], { lr: 1, momentum: 0.5 }),
    ];
    b.loadStateDict({ ...b.stateDict(), state: { 0: { momentum_buffer: null as never } } });
    for (const optimizer of [a, b, a, b]) optimizer.step();
    assert.equal(q.item(), p.item());
    refuses(
      () => b.loadStateDict({ ...b.stateDict(), state: { 0: { momentum_buffer: zeros([2]) } } }),
      /momentum_buffer .* of shape \[1\], got \[2\]/,
    );
  });

  it('is copied when it is loaded', () => {
    const [a, b] = [stepped(), stepped()];
    b.loadStateDict(a.stateDict());
    a.step();
    assert.equal(stateOf(b)['step'], 1);
    assert.notDeepEqual(
      (stateOf(a)['exp_avg'] as Tensor).tolist(),
      (stateOf(b)['exp_avg'] as Tensor).tolist(),
    );
  });
});

describe('a learning rate that the program sets in a group', () => {
  it('must be a finite number, or the step is refused', () => {
    const weight = ones([2]).requiresGrad_();
    const optimizer = new optim.SGD([weight], { lr: 0.1 });
    weight.sum().backward();
    for (const lr of ['0.1', Number.NaN, undefined]) {
      (optimizer.paramGroups[0] as { lr: unknown }).lr = lr;
      assert.throws(() => optimizer.step(), /SGD.step: expected lr to be a finite number/);
    }
    assert.deepEqual(weight.tolist(), [1, 1]);
  });
});
