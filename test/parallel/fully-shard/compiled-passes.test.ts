/** Passes of a compiled sharded model beside uncompiled ones: each backward is that of its forward. */
import assert from 'node:assert/strict';
import { compiledAutograd } from '../../../lib/compile/index.js';
import {
  applyActivationCheckpointing,
  checkpoint,
  DTensor,
  FullyShardedDataParallel,
  fullyShard,
} from '../../../lib/distributed.js';
import { compile, full, manualSeed, nn, noGrad, type Tensor } from '../../../lib/index.js';
import { CompileCounterWithBackend, withRanks } from '../../../lib/testing/index.js';

type Layer = nn.Module<[Tensor], Tensor>;
type Counter = ReturnType<typeof CompileCounterWithBackend>;
/** What compiles, and what runs backward. */
const BACKENDS = [
  ['aot_eager', 'the tape'],
  ['inductor', 'compiledAutograd'],
] as const;

const isLinear = (module: nn.AnyModule): boolean => module instanceof nn.Linear;

function layers(): nn.Sequential {
  manualSeed(5);
  return new nn.Sequential(
    new nn.Linear(4, 4),
    new nn.Tanh(),
    new nn.Linear(4, 4),
    new nn.Linear(4, 2),
  );
}

function shardEach(model: nn.Sequential, reshardAfterForward: boolean | null): Layer {
  for (const layer of model.children())
    if ([...layer.parameters()].length > 0) fullyShard(layer, { reshardAfterForward });
  return fullyShard(model, { reshardAfterForward });
}

const flat = (model: nn.Sequential, useOrigParams: boolean): Layer =>
  new FullyShardedDataParallel(model, {
    autoWrapPolicy: (module) => isLinear(module),
    useOrigParams,
  }) as unknown as Layer;

const WAYS: Readonly<Record<string, (model: nn.Sequential) => Layer>> = {
  'fullyShard on each layer': (model) => shardEach(model, null),
  'fullyShard that keeps whole parameters': (model) => shardEach(model, false),
  'flat parameters of each layer': (model) => flat(model, false),
  'flat parameters with useOrigParams': (model) => flat(model, true),
};

/** Where checkpoints are. */
interface Checkpoints {
  readonly wraps?: boolean;
  readonly call: (model: Layer) => (x: Tensor) => Tensor;
}

const CHECKPOINTS: Readonly<Record<string, Checkpoints>> = {
  'no checkpoints': { call: (model) => (x) => model(x) },
  'checkpoints in layers': { wraps: true, call: (model) => (x) => model(x) },
  'a checkpoint around the model': {
    call: (model) => (x) => checkpoint((t: Tensor) => model(t).sin(), x),
  },
};

/** What runs a pass: the model, or what is compiled of it. */
type By = 'model' | 'graph';
/** A forward with a name, whose backward comes later; an evaluation; or such a backward. */
type Step =
  | { readonly forward: string; readonly by: By }
  | { readonly evaluate: By }
  | { readonly backward: string; readonly retainGraph?: boolean };

const forward = (name: string, by: By): Step => ({ forward: name, by });
const evaluate = (by: By): Step => ({ evaluate: by });
const backward = (name: string, retainGraph = false): Step => ({ backward: name, retainGraph });

const PROGRAMS: readonly (readonly [name: string, steps: readonly Step[]])[] = Object.entries({
  'an uncompiled pass around a compiled evaluation': [
    forward('a', 'model'),
    evaluate('graph'),
    backward('a'),
  ],
  'a compiled pass around an uncompiled evaluation': [
    forward('a', 'graph'),
    evaluate('model'),
    backward('a'),
  ],
  'an uncompiled pass around a compiled one': [
    forward('a', 'model'),
    forward('b', 'graph'),
    backward('b'),
    backward('a'),
  ],
  'a compiled pass around an uncompiled one': [
    forward('a', 'graph'),
    forward('b', 'model'),
    backward('b'),
    backward('a'),
  ],
  'a compiled pass after an uncompiled one has begun': [
    forward('a', 'model'),
    forward('b', 'graph'),
    backward('a'),
    backward('b'),
  ],
  'an uncompiled pass after a compiled one has begun': [
    forward('a', 'graph'),
    forward('b', 'model'),
    backward('a'),
    backward('b'),
  ],
  'two passes of each kind': [
    forward('a', 'graph'),
    forward('b', 'model'),
    forward('c', 'graph'),
    forward('d', 'model'),
    backward('c'),
    backward('b'),
    backward('d'),
    backward('a'),
  ],
  'a compiled pass around a compiled evaluation': [
    forward('a', 'graph'),
    evaluate('graph'),
    backward('a'),
  ],
  'two compiled passes': [
    forward('a', 'graph'),
    forward('b', 'graph'),
    backward('a'),
    backward('b'),
  ],
  'two backward passes of a compiled one': [
    forward('a', 'graph'),
    backward('a', true),
    evaluate('model'),
    backward('a'),
  ],
  'both kinds in one backward': [
    forward('ab', 'model'),
    forward('ab', 'graph'),
    forward('ab', 'model'),
    evaluate('graph'),
    backward('ab'),
  ],
});

/** Runs a program. The passes of a name have one backward, which `around` runs. */
function run(
  steps: readonly Step[],
  calls: Readonly<Record<By, (x: Tensor) => Tensor>>,
  around: (pass: () => void) => void = (pass) => pass(),
): void {
  const losses = new Map<string, Tensor>();
  let passes = 0;
  for (const step of steps) {
    if ('backward' in step) {
      const { retainGraph = false } = step;
      around(() => losses.get(step.backward)?.backward(undefined, { retainGraph }));
      continue;
    }
    const call = calls['forward' in step ? step.by : step.evaluate];
    const x = full([3, 4], 0.25 * ++passes);
    if (!('forward' in step)) {
      noGrad(() => call(x));
      continue;
    }
    const loss = call(x).square().sum();
    losses.set(step.forward, losses.get(step.forward)?.add(loss) ?? loss);
  }
}

/** What the rank has of each gradient. */
async function gradientsOf(model: Layer): Promise<Record<string, unknown>> {
  const values: Record<string, unknown> = {};
  for (const [name, { grad }] of model.namedParameters()) {
    const local = grad instanceof DTensor ? grad.toLocal() : grad;
    values[name] = local && Array.from(await local.detach().contiguous().read(), Number);
  }
  return values;
}

/** Runs all programs twice on one model, whose graphs are captured once. */
async function assertAsUncompiled(
  shard: (model: nn.Sequential) => Layer,
  { wraps = false, call }: Checkpoints,
  backend: (typeof BACKENDS)[number][0],
  isBackwardCompiled: boolean,
): Promise<void> {
  const [model, other] = [0, 1].map(() => {
    const whole = layers();
    if (wraps) applyActivationCheckpointing(whole, { checkFn: isLinear });
    return shard(whole);
  }) as [Layer, Layer];
  const [counter, backwards] = [0, 1].map(() => CompileCounterWithBackend(backend)) as [
    Counter,
    Counter,
  ];
  const enabled = (pass: () => void): void =>
    compiledAutograd.enable((each) => compile(each, { backend: backwards }), pass);
  const [own, expected] = [call(model), call(other)];
  const graph = compile(call(model), { backend: counter, fullgraph: true });
  for (const [name, steps] of [...PROGRAMS, ...PROGRAMS]) {
    run(steps, { model: own, graph }, isBackwardCompiled ? enabled : undefined);
    run(steps, { model: expected, graph: expected });
    assert.deepEqual(await gradientsOf(model), await gradientsOf(other), name);
    for (const each of [model, other]) each.zeroGrad();
  }
  assert.equal(counter.frameCount, 2, 'one graph with gradients, and one without');
  assert.equal(backwards.frameCount > 0, isBackwardCompiled, 'backward is captured');
}

describe('a sharded model that is compiled, and called beside that', () => {
  for (const [way, shard] of Object.entries(WAYS))
    for (const [where, checkpoints] of Object.entries(CHECKPOINTS))
      for (const [backend, pass] of BACKENDS)
        it(
          `has the gradients of the uncompiled one: ${way}, ${where}, ${backend}, ${pass}`,
          withRanks(2, () =>
            assertAsUncompiled(shard, checkpoints, backend, pass === 'compiledAutograd'),
          ),
        );
});
