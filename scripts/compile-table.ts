/**
 * Writes the table of docs/compile.md: what compile captures, what it breaks into frames and what it
 * refuses. With --check, fails if the page differs.
 */
import '../lib/distributed.js'; // ops of its own are in the table of ops, too
import { dispatch } from '../lib/core/dispatch.js';
import type { AnyOp, Sample } from '../lib/core/op.js';
import { writer } from '../lib/eager/submit.js';
import { Tensor, tensor } from '../lib/index.js';
import { allComposites, type Composite } from '../lib/ops/composite.js';
import { distributedFeatures, inFakeWorld } from '../test/compiled/distributed-features.js';
import { features } from '../test/compiled/feature-list.js';
import { type Feature, type Outcome, outcomeOf, type Program } from '../test/compiled/features.js';
import { ownOps } from '../test/every-op/differentiable.js';
import { withParts, writeOrCheck } from './written-parts.js';

interface Row {
  readonly what: string;
  readonly outcomes: readonly Outcome[];
  readonly instead?: string | undefined;
}

const input = (): Tensor => tensor([1, 2], { requiresGrad: true });

/** A subject is captured if all programs of it are. */
const worst = (programs: readonly Program[]): Outcome =>
  programs
    .map((program) => outcomeOf(program, input))
    .reduce((a, b) => (a.refusal === null ? b : a));

function opRow(what: string, ops: readonly AnyOp[]): Row {
  const ofSample =
    (op: AnyOp, { inputs, params }: Sample<object>): Program =>
    () =>
    () =>
      dispatch(op, inputs, params)[0];
  return {
    what,
    outcomes: ops.map((op) =>
      worst((op.samples() as Sample<object>[]).map((s) => ofSample(op, s))),
    ),
  };
}

const composite = ({ fn, samples }: Composite): Outcome =>
  worst(
    samples().map((args) => () => () => {
      const result = (fn as (...all: readonly unknown[]) => unknown)(...args);
      return result instanceof Tensor ? result : null;
    }),
  );

const featureRow = ({ what, programs, instead }: Feature): Row => ({
  what,
  outcomes: programs.map((program) => outcomeOf(program, input)),
  instead,
});

async function rows(): Promise<Row[]> {
  const ops = ownOps().filter((op) => op.samples().length > 0 && !op.traits.includes('collective'));
  let distributed: Row[] = [];
  await inFakeWorld(() => {
    distributed = distributedFeatures.map(featureRow);
  });
  return [
    opRow(
      'ops with gradients',
      ops.filter(({ vjp }) => vjp !== null),
    ),
    opRow(
      'other ops',
      ops.filter(({ vjp }) => vjp === null),
    ),
    {
      what: 'functions made of ops',
      outcomes: allComposites().map(composite),
      instead: 'see values',
    },
    ...features.map(featureRow),
    ...distributed,
  ];
}

function line({ what, outcomes, instead = '' }: Row): string {
  const count = (holds: (outcome: Outcome) => boolean): string => {
    const n = outcomes.filter(holds).length;
    return n === 0 ? '' : n === outcomes.length ? `all ${n}` : `${n}`;
  };
  const cells = [
    what,
    count(({ refusal }) => refusal === null),
    count(({ refusal, frames }) => refusal !== null && frames > 0),
    count(({ refusal }) => refusal !== null),
    instead,
  ];
  return `| ${cells.join(' | ')} |`;
}

async function table(): Promise<string> {
  return [
    '| a function with | captured | broken into segments and frames | refused with `fullgraph` | instead |',
    '| --- | --- | --- | --- | --- |',
    ...(await rows()).map(line),
    '',
  ].join('\n');
}

const written = await table();
const code = writeOrCheck('docs/compile.md', (page) => withParts(page, [written]));
writer.addon.shutdown();
process.exit(code);
