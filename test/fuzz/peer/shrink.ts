/** Shrinks a program that differs: removes steps while it still differs. */
import { difference } from './compare.js';
import { Machine } from './machine.js';
import type { TorchPeer } from './peer.js';
import type { Answer, Program, Step } from './program.js';

/** Runs a program here. An error that is not the library's is the answer, which no peer gives. */
export function runHere(program: Program): Answer | string {
  const machine = new Machine();
  try {
    for (const step of program.steps) machine.run(step);
    return machine.answer();
  } catch (error) {
    return String(error);
  }
}

/**
 * The smallest program found, as text. Steps that create tensors are removed last, because later
 * steps refer to tensors by number.
 */
export async function shrink(program: Program, peer: TorchPeer): Promise<string> {
  let { steps } = program;
  const found = async (smaller: Program): Promise<string | null> => {
    const ours = runHere(smaller);
    if (typeof ours === 'string') return ours;
    const answer = await peer.run(smaller);
    return answer === null ? null : difference(ours, answer);
  };
  const differs = async (candidate: readonly Step[]): Promise<boolean> => {
    return (await found({ ...program, steps: candidate })) !== null;
  };
  for (let i = steps.length - 1; i >= 0; i--) {
    const without = withoutStep(steps, i);
    if (without !== null && (await differs(without))) steps = without;
  }
  const smaller = { ...program, steps };
  return (
    `${steps.map((step, i) => `  ${i}: ${JSON.stringify(step)}`).join('\n')}\n  ` +
    `${await found(smaller)}`
  );
}

/** The steps without one, with renumbered tensors; null if a later step uses its results. */
function withoutStep(steps: readonly Step[], at: number): Step[] | null {
  const made = tensorsMade(steps);
  const first = made.slice(0, at).reduce((sum, count) => sum + count, 0);
  const count = made[at] as number;
  const rest: Step[] = [];
  for (const [i, step] of steps.entries()) {
    if (i === at) continue;
    const moved = i < at ? step : shifted(step, first, count);
    if (moved === null) return null;
    rest.push(moved);
  }
  return rest;
}

function tensorsMade(steps: readonly Step[]): number[] {
  const machine = new Machine();
  return steps.map((step) => {
    const before = machine.tensors.length;
    try {
      machine.run(step);
    } catch {
      return 0;
    }
    return machine.tensors.length - before;
  });
}

function shifted(step: Step, first: number, count: number): Step | null {
  let needed = false;
  const moved = JSON.parse(JSON.stringify(step), (key, value) => {
    if (key !== 'r' || typeof value !== 'number' || value < first) return value;
    if (value < first + count) needed = true;
    return value - count;
  }) as Step;
  return needed ? null : moved;
}
