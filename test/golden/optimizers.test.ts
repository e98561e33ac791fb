/** Optimizers and gradient clipping give PyTorch's recorded parameters after each step. */
import { describe, it } from 'mocha';
import * as sw from '../../lib/index.js';
import { assertClose } from './compare.js';
import { devices } from './devices.js';

import { type Fixture, withFixture } from './read-fixture.js';
import { Decoder, type Encoded } from './run-case.js';
import { type DeviceName, expected, makeTensor, snapshot, type Tensor } from './tensors.js';

type Options = Record<string, unknown>;

interface OptimizerCase {
  kind: 'optimizer';
  name: string;
  optimizer: 'SGD' | 'Adam' | 'AdamW';
  options: Record<string, Encoded>;
  groups: Record<string, Encoded>[] | null;
  /** Parameter and step where there is no gradient. */
  missing: [parameter: number, step: number] | null;
  params: string[];
  /** One tensor for each parameter, with the steps as first dim. */
  grads: string[];
  expected: string[];
}

interface ClipCase {
  kind: 'clip';
  name: string;
  maxNorm: number;
  normType: Encoded;
  grads: string[];
  total: string;
  expected: string[];
}

type Case = OptimizerCase | ClipCase;

const variants: Options[] = [
  {},
  { foreach: false },
  { foreach: true },
  { fused: true },
  { capturable: true, foreach: true },
  { capturable: true, fused: true },
  { capturable: true, foreach: false },
];
const steps = 5;

function optimizerSuite(device: DeviceName): void {
  describe(`on ${device},`, () => {
    withFixture<Case>('optimizer', (fixture) => {
      for (const c of fixture.cases) {
        if (c.kind === 'clip') {
          it(`${c.name} matches PyTorch`, () => checkClip(fixture, c, device));
          continue;
        }
        for (const variant of variants) {
          const shown = Object.entries(variant).map(([key, value]) => ` (${key} ${value})`);
          it(`${c.name}${shown.join('')} matches PyTorch`, () =>
            checkSteps(fixture, c, variant, device, steps));
        }
        it(`${c.name}, resumed from its state dict after two steps, matches PyTorch`, () =>
          checkSteps(fixture, c, {}, device, 2));
        for (const capturable of [true, false])
          it(`${c.name}, resumed ${capturable ? 'as' : 'from'} capturable, matches PyTorch`, () =>
            checkSteps(fixture, c, { capturable: !capturable }, device, 2, { capturable }));
      }
    });
  });
}

function makeOptimizer(
  c: OptimizerCase,
  params: Tensor[],
  decoder: Decoder,
  variant: Options,
): sw.optim.Optimizer {
  const Optimizer = sw.optim[c.optimizer] as unknown as new (
    params: unknown,
    options: Options,
  ) => sw.optim.Optimizer;
  const given = c.groups
    ? c.groups.map((group, i) => ({ params: [params[i]], ...decoder.options(group) }))
    : params;
  return new Optimizer(given, { ...decoder.options(c.options), ...variant });
}

/** After `resumeAt` steps a new optimizer takes over the state of the first. */
function checkSteps(
  fixture: Fixture<Case>,
  c: OptimizerCase,
  variant: Options,
  device: DeviceName,
  resumeAt: number,
  resumed: Options = variant,
): void {
  const decoder = new Decoder(fixture, device);
  const params = c.params.map((key) => makeTensor(fixture.entry(key), device).requiresGrad_());
  const grads = c.grads.map((key) => makeTensor(fixture.entry(key), device));
  const wanted = c.expected.map((key) => expected(fixture.entry(key)));
  let optimizer = makeOptimizer(c, params, decoder, variant);
  for (let step = 0; step < steps; step++) {
    if (step === resumeAt) {
      const state = optimizer.stateDict();
      optimizer = makeOptimizer(c, params, decoder, resumed);
      for (const group of state.param_groups) group['capturable'] = resumed['capturable'] === true;
      optimizer.loadStateDict(state);
    }
    params.forEach((param, i) => {
      const absent = c.missing !== null && c.missing[0] === i && c.missing[1] === step;
      param.grad = absent ? null : (grads[i] as Tensor).select(0, step).clone();
    });
    optimizer.step();
    params.forEach((param, i) => {
      const { dtype, shape, values } = wanted[i] as (typeof wanted)[number];
      const size = values.length / steps;
      const now = {
        dtype,
        shape: shape.slice(1),
        values: (values as Float32Array).slice(step * size, (step + 1) * size),
      };
      assertClose(snapshot(param), now, `parameter ${i} after step ${step + 1}`);
    });
  }
}

function checkClip(fixture: Fixture<Case>, c: ClipCase, device: DeviceName): void {
  const params = c.grads.map((key) => {
    const grad = makeTensor(fixture.entry(key), device);
    const param = grad.zerosLike().requiresGrad_();
    param.grad = grad;
    return param;
  });
  const normType = new Decoder(fixture, device).value(c.normType, 'normType') as number;
  const total = sw.nn.utils.clipGradNorm_(params, c.maxNorm, { normType });
  assertClose(snapshot(total), expected(fixture.entry(c.total)), 'total norm');
  params.forEach((param, i) => {
    assertClose(
      snapshot(param.grad as Tensor),
      expected(fixture.entry(c.expected[i] as string)),
      `gradient ${i}`,
    );
  });
}

for (const device of devices) optimizerSuite(device);
