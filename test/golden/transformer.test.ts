/** Transformer modules give PyTorch's recorded outputs, weights and gradients. */
import assert from 'node:assert/strict';
import { describe, it } from 'mocha';
import * as sw from '../../lib/index.js';
import { assertClose, assertNear, type Slack } from './compare.js';
import { devices } from './devices.js';

import { type Fixture, withFixture } from './read-fixture.js';
import { Decoder, type Encoded, tensorsOf } from './run-case.js';
import { camelCase, type Described, seededWeights } from './seeded-weights.js';
import {
  type DeviceName,
  expected,
  makeTensor,
  type Snapshot,
  snapshot,
  type Tensor,
} from './tensors.js';

interface Case {
  name: string;
  module:
    | 'Transformer'
    | 'TransformerEncoderLayer'
    | 'TransformerDecoderLayer'
    | 'MultiheadAttention';
  args: Encoded[];
  options: Record<string, Encoded>;
  seed: number;
  params: Described;
  inputs: Encoded[];
  forward: Record<string, Encoded>;
  outputs: (string | null)[];
  cotangents: (string | null)[];
  inputGrads: string[];
  /** Only every n-th element of a parameter's gradient is recorded, together with its norm. */
  every: number;
  grads: Record<string, string>;
  gradNorms: Record<string, number>;
  tolerance: Slack;
}

type AnyModule = sw.nn.Module & { forward(...args: unknown[]): unknown };

function transformerSuite(device: DeviceName): void {
  for (const name of ['transformer-layers', 'transformer']) {
    describe(`on ${device},`, () => {
      withFixture<Case>(name, (fixture) => {
        for (const c of fixture.cases)
          it(`${c.name} matches PyTorch`, () => check(fixture, c, device));
      });
    });
  }
}

/**
 * The module with the fixture's weights, and its parameters in PyTorch's order and under PyTorch's
 * names.
 */
function makeModule(
  c: Case,
  decoder: Decoder,
  device: DeviceName,
): { module: AnyModule; params: Map<string, Tensor> } {
  const Module = sw.nn[c.module] as unknown as new (...args: unknown[]) => AnyModule;
  const options = decoder.options(c.options);
  const module = new Module(
    ...decoder.list(c.args),
    ...(Object.keys(options).length ? [options] : []),
  ).to(device) as AnyModule;
  const weights = seededWeights(c.params, c.seed, device);
  const keys = new Set(Object.keys(module.stateDict()));
  const local = (name: string): string => (keys.has(name) ? name : camelCase(name));
  module.loadStateDict(
    Object.fromEntries([...weights].map(([name, weight]) => [local(name), weight])),
  );
  const own = new Map<string, Tensor>(module.namedParameters());
  assert.deepEqual(
    [...own.keys()],
    Object.keys(c.params).map(local),
    'names or order of the parameters differ from PyTorch',
  );
  const params = new Map(
    Object.keys(c.params).map((name) => [name, own.get(local(name)) as Tensor]),
  );
  return { module, params };
}

function check(fixture: Fixture<Case>, c: Case, device: DeviceName): void {
  const decoder = new Decoder(fixture, device);
  const { module, params } = makeModule(c, decoder, device);
  const inputs = decoder.list(c.inputs).map((input) => (input as Tensor).requiresGrad_());
  const forward = decoder.options(c.forward);
  const run = (): (Tensor | null)[] =>
    tensorsOf(module.forward(...inputs, ...(Object.keys(forward).length ? [forward] : [])));

  module.train();
  const outputs = run();
  checkOutputs(fixture, c, outputs, 'training');

  const used: Tensor[] = [];
  const gradOutputs: Tensor[] = [];
  c.cotangents.forEach((key, i) => {
    if (key === null) return;
    used.push(outputs[i] as Tensor);
    gradOutputs.push(makeTensor(fixture.entry(key), device));
  });
  const grads = sw.autograd.grad(used, [...inputs, ...params.values()], { gradOutputs });
  c.inputGrads.forEach((key, i) => {
    assertClose(
      snapshot(grads[i] as Tensor),
      expected(fixture.entry(key)),
      `gradient of input ${i}`,
      c.tolerance,
    );
  });
  [...params.keys()].forEach((name, i) => {
    const grad = snapshot(grads[inputs.length + i] as Tensor);
    const what = `gradient of ${name}`;
    const norm = c.gradNorms[name];
    if (norm !== undefined)
      assertNear(normOf(grad), norm, 1e-5, c.tolerance?.float32 ?? 1e-5, `norm of the ${what}`);
    assertClose(
      sampled(grad, c.every),
      expected(fixture.entry(c.grads[name] as string)),
      what,
      c.tolerance,
    );
  });

  module.eval();
  checkOutputs(fixture, c, sw.noGrad(run), 'evaluation');
}

function checkOutputs(
  fixture: Fixture<Case>,
  c: Case,
  outputs: (Tensor | null)[],
  mode: string,
): void {
  assert.ok(
    outputs.length <= c.outputs.length,
    `${outputs.length} outputs, PyTorch has ${c.outputs.length}`,
  );
  c.outputs.forEach((key, i) => {
    const output = outputs[i] ?? null;
    assert.equal(
      output === null,
      key === null,
      `output ${i} in ${mode} is ${output === null ? 'null' : 'there'}, unlike PyTorch's`,
    );
    if (output !== null && key !== null)
      assertClose(
        snapshot(output),
        expected(fixture.entry(key)),
        `output ${i} in ${mode}`,
        c.tolerance,
      );
  });
}

function sampled(grad: Snapshot, every: number): Snapshot {
  if (every === 1) return grad;
  const values = Array.from(grad.values as ArrayLike<number>).filter((_, i) => i % every === 0);
  return { dtype: grad.dtype, shape: [values.length], values };
}

function normOf(grad: Snapshot): number {
  return Math.hypot(...Array.from(grad.values as ArrayLike<number>));
}

for (const device of devices) transformerSuite(device);
