/**
 * Results of collectives in lowered graphs. A collective runs beside the nodes after it; the first
 * use of its result waits for it, by a node of its own.
 */
import { isAsynchronous } from '../../core/asynchronous.js';
import { heldOf } from '../../core/sharding.js';
import type { Tensor } from '../../core/tensor.js';
import { waitTensorOp } from '../../ops/wait-tensor.js';
import type { Value } from '../graph/node.js';
import type { Recorder } from './recorder.js';

export class Waits {
  /** The results, and inputs that are some, that nothing has used. */
  private readonly pending = new Set<Tensor>();

  /** Adds results of a collective. */
  add(results: readonly Tensor[]): void {
    for (const t of results) this.pending.add(t);
  }

  /** The value of a known tensor for a use: a result of a collective is waited for. */
  use(recorder: Recorder, t: Tensor, value: Value): Value {
    if (!this.pending.delete(t)) return value;
    const node = recorder.record(waitTensorOp, [t], {}, null, [t], [value]);
    recorder.known.change(t, { node, output: 0 });
    return { node, output: 0 };
  }

  /** The value of a result, which the caller waits for if it is one of a collective. */
  resultOf(recorder: Recorder, t: Tensor): Value {
    const same = isAsynchronous(t) ? (recorder.known.sameAs(t) ?? t) : t;
    const known = this.pending.has(same) ? recorder.known.get(same) : undefined;
    return known ?? recorder.valueOf(t);
  }
}

/** A tensor becomes the result of a collective, or the program waits for it. */
export function recordAsynchronous(recorder: Recorder, t: Tensor, value: boolean): void {
  if (!recorder.recordsEffects) return;
  if (recorder.level !== 'lowered') recorder.effect('setAsynchronous', [t], { value });
  else if (!value) recorder.valueOf(heldOf(t));
}
