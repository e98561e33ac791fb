/**
 * A public function either succeeds or throws an error of the library, whatever its arguments are.
 */
import assert from 'node:assert/strict';
import { absenceOf } from '../../lib/core/absent.js';
import * as shardwise from '../../lib/index.js';
import {
  amp,
  autograd,
  compiler,
  cuda,
  getDefaultDevice,
  getDefaultDtype,
  getRngState,
  isGradEnabled,
  library,
  manualSeed,
  memory,
  nn,
  ones,
  optim,
  rand,
  setDefaultDevice,
  setDefaultDtype,
  setGradEnabled,
  setRngState,
  Tensor,
  tensor,
} from '../../lib/index.js';
import {
  type AnyClass,
  type AnyFunction,
  badArguments,
  isClass,
  rawErrors,
} from './bad-arguments.js';

/** Whether a value is a function or a class, and stands for no absent one. */
const isGiven = (value: unknown): value is AnyFunction | AnyClass =>
  typeof value === 'function' && absenceOf(value) === undefined;

/** The functions and classes of a namespace. */
const members = (namespace: object): [name: string, member: AnyFunction | AnyClass][] =>
  Object.entries(namespace).filter((entry): entry is [string, AnyFunction | AnyClass] =>
    isGiven(entry[1]),
  );

/** A class as a function that returns an instance. */
function made(member: AnyFunction | AnyClass): AnyFunction {
  return isClass(member) ? (...args) => Reflect.construct(member, args) : member;
}

/** Methods of a class that users call. */
const methodsOf = (prototype: object): [name: string, method: AnyFunction][] =>
  Object.entries(Object.getOwnPropertyDescriptors(prototype)).flatMap(([name, { value }]) =>
    typeof value === 'function' && !untried.has(name) ? [[name, value as AnyFunction]] : [],
  );

/**
 * Not called: classes that only the library constructs, methods that free what the next call needs,
 * and the garbage collector, which takes no arguments but long.
 */
const untried = new Set(['constructor', 'Tensor', 'Storage', 'dispose', 'Node', 'collect']);

async function failuresOf(
  prefix: string,
  namespace: object,
  lists = badArguments(),
): Promise<string[]> {
  const failures: string[] = [];
  for (const [name, member] of members(namespace)) {
    if (!untried.has(name) && !name.endsWith('Error'))
      failures.push(...(await rawErrors(prefix + name, made(member), lists)));
  }
  return failures;
}

function parameter(): Tensor {
  return rand([2, 3]).requiresGrad_();
}

/** Layers to call, by the name of their class. */
const layers: readonly (() => nn.Module)[] = [
  () => new nn.Linear(3, 2),
  () => new nn.Embedding(5, 3),
  () => new nn.LayerNorm(3),
  () => new nn.RMSNorm(3),
  () => new nn.GroupNorm(1, 3),
  () => new nn.BatchNorm1d(3),
  () => new nn.Dropout(),
  () => new nn.Flatten(),
  () => new nn.Unflatten(1, [3, 1]),
  () => new nn.ReLU(),
  () => new nn.GELU(),
  () => new nn.SiLU(),
  () => new nn.Softmax(),
  () => new nn.Sequential(new nn.Linear(3, 2)),
  () => new nn.PReLU(),
  () => new nn.Tanh(),
];
/** Modules of several arguments. */
const others = (): Record<string, AnyFunction> => ({
  MultiheadAttention: new nn.MultiheadAttention(3, 1) as unknown as AnyFunction,
  TransformerEncoderLayer: new nn.TransformerEncoderLayer(3, 1, {
    dimFeedforward: 2,
  }) as unknown as AnyFunction,
  TransformerDecoderLayer: new nn.TransformerDecoderLayer(3, 1, {
    dimFeedforward: 2,
  }) as unknown as AnyFunction,
  CrossEntropyLoss: new nn.CrossEntropyLoss() as unknown as AnyFunction,
  MSELoss: new nn.MSELoss() as unknown as AnyFunction,
  BCEWithLogitsLoss: new nn.BCEWithLogitsLoss() as unknown as AnyFunction,
  CosineSimilarity: new nn.CosineSimilarity() as unknown as AnyFunction,
  Bilinear: new nn.Bilinear(3, 3, 2) as unknown as AnyFunction,
});

/**
 * A program that fails if a call left a dtype, device, mode, random state or dispatcher changed.
 */
function simpleProgram(): void {
  const x = tensor([
    [1, 2],
    [3, 4],
  ]).requiresGrad_();
  const y = x.matmul(x).sum();
  y.backward();
  assert.equal(y.item(), 54);
  assert.deepEqual(x.grad?.tolist(), [
    [7, 11],
    [9, 13],
  ]);
  manualSeed(1);
  const model = new nn.Linear(2, 1);
  const optimizer = new optim.SGD(model.parameters(), { lr: 0.01 });
  const losses = Array.from({ length: 3 }, () => {
    optimizer.zeroGrad();
    const loss = nn.functional.mseLoss(model(tensor([[1, 2]])), tensor([[1]]));
    loss.backward();
    optimizer.step();
    return Number(loss.item());
  }) as [number, number, number];
  assert.ok(
    losses[0] > losses[1] && losses[1] > losses[2],
    `the loss does not fall: ${losses.join(', ')}`,
  );
  assert.equal(ones([2]).dtype, shardwise.float32);
}

describe('a bad argument', function () {
  this.timeout(60_000); // every method with hundreds of lists
  const state = {
    dtype: getDefaultDtype(),
    device: getDefaultDevice(),
    grad: isGradEnabled(),
    random: getRngState(),
    anomaly: autograd.isAnomalyEnabled(),
  };
  let recording: boolean;

  before(() => {
    recording = memory.snapshot().recording;
  });
  beforeEach(() => manualSeed(0));
  afterEach(() => {
    setDefaultDtype(state.dtype);
    setDefaultDevice(state.device);
    setGradEnabled(state.grad);
    setRngState(state.random);
    autograd.setDetectAnomaly(state.anomaly);
    memory.recordHistory(recording);
    simpleProgram();
    setRngState(state.random);
  });

  const namespaces: Record<string, object> = {
    'nn.functional.': nn.functional,
    'nn.init.': nn.init,
    'nn.utils.': { ...nn.utils, ...nn.utils.rnn },
    'autograd.': autograd,
    'memory.': memory,
    'cuda.': cuda,
    'amp.': amp,
    'library.': library,
    'compiler.': compiler,
  };

  it('of a function of the package never ends in a raw error', async () => {
    assert.deepEqual(await failuresOf('', shardwise), []);
  });

  for (const [prefix, namespace] of Object.entries(namespaces)) {
    it(`of ${prefix.slice(0, -1)} never ends in a raw error`, async () => {
      assert.deepEqual(await failuresOf(prefix, namespace), []);
    });
  }

  it('of a schedule never ends in a raw error', async () => {
    const optimizer = new optim.SGD([parameter()], { lr: 1, momentum: 0.5 });
    const failures = await failuresOf('optim.lrScheduler.', optim.lrScheduler);
    failures.push(
      ...(await failuresOf('optim.lrScheduler.', optim.lrScheduler, badArguments(optimizer))),
    );
    const { ReduceLROnPlateau, StepLR, ChainedScheduler } = optim.lrScheduler;
    const plateau = new ReduceLROnPlateau(optimizer);
    const steps = new StepLR(optimizer, { stepSize: 2 });
    const chained = new ChainedScheduler([steps]);
    const methods = {
      step: plateau.step.bind(plateau),
      ...Object.fromEntries(
        [plateau, steps, chained].map((s) => [
          `${s.constructor.name}.loadStateDict`,
          s.loadStateDict.bind(s),
        ]),
      ),
    };
    for (const [name, method] of Object.entries(methods))
      failures.push(...(await rawErrors(name, method as AnyFunction, badArguments())));
    assert.deepEqual(failures, []);
  });

  it('of an optimizer never ends in a raw error', async () => {
    const failures: string[] = [];
    for (const [name, Class] of Object.entries({
      SGD: optim.SGD,
      Adam: optim.Adam,
      AdamW: optim.AdamW,
    })) {
      for (const first of [ones([2, 3]), [parameter()], [{ params: [parameter()] }]])
        failures.push(
          ...(await rawErrors(`optim.${name}`, made(Class as AnyClass), badArguments(first))),
        );
    }
    for (const [name, method] of methodsOf(optim.Optimizer.prototype)) {
      if (/^(check|creating|prepareState|stepGroup|zerosFor)/.test(name)) continue;
      const optimizer = new optim.Adam([parameter()]);
      // A hook that is a function may do anything, so functions are left out.
      const lists = badArguments().filter(([first]) => typeof first !== 'function');
      failures.push(...(await rawErrors(`optimizer.${name}`, method.bind(optimizer), lists)));
    }
    assert.deepEqual(failures, []);
  });

  it('of the constructor of a layer never ends in a raw error', async () => {
    const classes = Object.fromEntries(
      members(nn).filter(([name, member]) => isClass(member) && name !== 'Module'),
    );
    // A transformer of the default size takes seconds, so only failing arguments are tried.
    const { Transformer, ...small } = classes as { Transformer: AnyClass };
    const failures = await failuresOf('new nn.', small);
    const refused = badArguments().filter(
      ([first]) => first === null || (first !== undefined && typeof first !== 'object'),
    );
    failures.push(...(await rawErrors('new nn.Transformer', made(Transformer), refused)));
    assert.deepEqual(failures, []);
  });

  it('of a layer never ends in a raw error', async () => {
    const calls: Record<string, AnyFunction> = others();
    for (const make of layers) {
      const layer = make();
      calls[layer.constructor.name] = layer as unknown as AnyFunction;
    }
    const failures: string[] = [];
    for (const [name, call] of Object.entries(calls))
      failures.push(...(await rawErrors(`nn.${name}`, call, badArguments())));
    for (const [name, method] of methodsOf(nn.Module.prototype)) {
      if (name === 'forward' || name === 'ownerOf' || name === 'convertTensors') continue;
      const layer = new nn.Linear(3, 2);
      const lists = badArguments().filter(([first]) => typeof first !== 'function');
      failures.push(...(await rawErrors(`module.${name}`, method.bind(layer), lists)));
    }
    assert.deepEqual(failures, []);
  });

  it('of a container never ends in a raw error', async () => {
    const failures: string[] = [];
    for (const Class of [
      nn.Sequential,
      nn.ModuleList,
      nn.ModuleDict,
      nn.ParameterList,
      nn.ParameterDict,
    ]) {
      for (const [name, method] of methodsOf(Class.prototype)) {
        if (name === 'forward') continue;
        failures.push(
          ...(await rawErrors(
            `nn.${Class.name}.${name}`,
            (...args) => method.apply(new Class(), args),
            badArguments(),
          )),
        );
      }
    }
    assert.deepEqual(failures, []);
  });

  it('of a setter, or of a value that the package returns, never ends in a raw error', async () => {
    const setters = Object.entries(Object.getOwnPropertyDescriptors(Tensor.prototype)).flatMap(
      ([name, { set }]) => (isGiven(set) ? [[name, set as AnyFunction] as const] : []),
    );
    const failures: string[] = [];
    for (const [name, set] of setters)
      failures.push(
        ...(await rawErrors(
          `tensor.${name} =`,
          (value) => set.call(rand([2, 3]), value),
          badArguments(),
        )),
      );
    const scaler = new amp.GradScaler();
    for (const [name, method] of methodsOf(amp.GradScaler.prototype)) {
      if (name !== 'adapt')
        failures.push(
          ...(await rawErrors(`GradScaler.${name}`, method.bind(scaler), badArguments())),
        );
    }
    const generator = new shardwise.Generator(0);
    for (const [name, method] of methodsOf(shardwise.Generator.prototype)) {
      if (name !== 'agree' && name !== 'nextTogether')
        failures.push(
          ...(await rawErrors(`Generator.${name}`, method.bind(generator), badArguments())),
        );
    }
    failures.push(
      ...(await rawErrors(
        'Embedding.fromPretrained',
        nn.Embedding.fromPretrained as AnyFunction,
        badArguments(),
      )),
    );
    assert.deepEqual(failures, []);
  });

  it('of a method of tensors never ends in a raw error', async () => {
    const failures: string[] = [];
    const lists = [
      ...badArguments(),
      ...badArguments(0).filter(([first, ...rest]) => first === 0 && rest.length > 0),
    ];
    for (const [name, method] of methodsOf(Tensor.prototype)) {
      const call: AnyFunction = (...args) => method.apply(rand([2, 3]), args);
      failures.push(...(await rawErrors(`tensor.${name}`, call, lists)));
    }
    assert.deepEqual(failures, []);
  });
});
