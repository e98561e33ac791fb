/**
 * Every op gives PyTorch's recorded values, gradients, strides and dtypes: one test for each call
 * in the fixtures.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'mocha';
import * as sw from '../../lib/index.js';
import { devices } from './devices.js';
import { withFixture } from './read-fixture.js';
import { type Case, runCase } from './run-case.js';
import { type DeviceName, dtypeOf, type Tensor } from './tensors.js';

const groups = [
  'pointwise',
  'binary',
  'convert',
  'create',
  'reduce',
  'matmul',
  'view',
  'index',
  'inplace',
  'nn',
  'loss',
  'attention',
];

/** In the order of lib/core/dtype.ts; digits in the promotion fixture are places in this list. */
const dtypeNames = [
  'float32',
  'float64',
  'float16',
  'bfloat16',
  'int64',
  'int32',
  'int16',
  'int8',
  'uint8',
  'bool',
];
const numbers = [2, 2.5, true];

interface PromotionCase {
  name: string;
  op: string;
  left: string;
  tensor: string;
  zeroDim: string;
  number?: string;
}

function goldenSuite(device: DeviceName): void {
  for (const group of groups) {
    describe(`${group} ops on ${device}`, () => {
      withFixture<Case>(group, (fixture) => {
        for (const c of fixture.cases)
          it(`match PyTorch in ${c.name}`, () => runCase(fixture, c, device));
      });
    });
  }
  describe(`dtype promotion on ${device}`, () => {
    withFixture<PromotionCase>('promotion', (fixture) => {
      for (const c of fixture.cases)
        it(`matches PyTorch in ${c.name}`, () => checkPromotion(c, device));
    });
  });
}

type Binary = (left: Tensor, right: Tensor | number | boolean) => Tensor;

function checkPromotion(c: PromotionCase, device: DeviceName): void {
  const op = (sw as unknown as Record<string, Binary>)[c.op];
  assert.ok(op, `the library has no function "${c.op}"`);
  const left = sw.ones([2], { dtype: dtypeOf(c.left), device });
  const ones = (shape: number[]): Tensor[] =>
    dtypeNames.map((name) => sw.ones(shape, { dtype: dtypeOf(name), device }));
  const wrong = [
    ...differences(
      op,
      left,
      ones([2]),
      c.tensor,
      dtypeNames.map((name) => `a ${name} tensor`),
    ),
    ...differences(
      op,
      left,
      ones([]),
      c.zeroDim,
      dtypeNames.map((name) => `a ${name} tensor without dims`),
    ),
    ...differences(
      op,
      left,
      numbers,
      c.number ?? '',
      numbers.map((value) => `the number ${value}`),
    ),
  ];
  assert.equal(wrong.length, 0, `${c.op} of ${c.left} and\n  ${wrong.join('\n  ')}`);
}

function differences(
  op: Binary,
  left: Tensor,
  others: readonly (Tensor | number | boolean)[],
  digits: string,
  labels: string[],
): string[] {
  const wrong: string[] = [];
  [...digits].forEach((digit, i) => {
    if (digit === '-') return; // PyTorch refuses this pair
    const want = dtypeNames[Number(digit)] as string;
    let got: string;
    try {
      got = op(left, others[i] as Tensor).dtype.name;
    } catch (error) {
      got = `an error (${(error as Error).message})`;
    }
    if (got !== want) wrong.push(`${labels[i]} gives ${got}, PyTorch gives ${want}`);
  });
  return wrong;
}

for (const device of devices) goldenSuite(device);

if (!devices.includes('cuda'))
  describe('golden tests on cuda', () => {
    it.skip('need a CUDA device: see npx shardwise doctor');
  });
