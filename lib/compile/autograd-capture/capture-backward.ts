/** Captures a backward pass: the engine runs once on borrowed tensors, hooks included. */
import { type EngineOptions, runBackward } from '../../autograd/engine.js';
import { noGrad } from '../../autograd/grad-mode.js';
import type { Edge } from '../../autograd/node.js';
import type { SavedTensor } from '../../autograd/saved-tensor.js';
import type { Tensor } from '../../core/tensor.js';
import { windowOn } from '../../ops/as-strided.js';
import { capturing } from '../capture/capture.js';
import { recording } from '../capture/levels.js';
import { observedNumber } from '../capture/number-inputs.js';
import { Recorder } from '../capture/recorder.js';
import type { Graph } from '../graph/graph.js';
import type { Node } from '../graph/node.js';
import { GuardCollector } from '../guards/guard-collector.js';
import type { BackwardSignature, LiftedNumber, LiftedSave } from './signature.js';

/** A captured pass. */
export interface CapturedBackward {
  /** Takes the lifts of a signature, numbers that are inputs, and the draws. */
  readonly graph: Graph;
  /** For each capture of the pass, which result it is; -1 for null. */
  readonly results: readonly number[];
  /** The plain numbers, by their positions in the signature, that are inputs. */
  readonly inputs: readonly number[];
}

/**
 * Captures a pass. `varying`: the positions of plain numbers that become inputs, unless JavaScript
 * reads them.
 *
 * @throws CompileError for a hook that a graph cannot repeat
 */
export function captureBackward(
  signature: BackwardSignature,
  roots: readonly Edge[],
  rootGrads: readonly Tensor[],
  options: EngineOptions,
  varying: readonly number[],
): CapturedBackward {
  const guards = new GuardCollector();
  for (const module of signature.modules) guards.addModule(module);
  const recorder = new Recorder(guards, 'backward');
  const { saves } = signature;
  const withGrad = new Set(signature.tensorsWithGrad);
  const numbers = new BorrowedNumbers(signature, varying);
  try {
    return capturing(recorder, () =>
      recording(recorder, () => {
        signature.lifts.forEach((t, i) => {
          recorder.placeholder(t, i, 'lift');
        });
        numbers.lend(recorder, signature.lifts.length);
        for (const draw of signature.draws) recorder.drawPlaceholder(draw);
        for (const t of withGrad) recorder.readsGrad(t);
        recorder.calls = signature.calls;
        for (const save of saves) save.saved.lend(() => valueOf(save));
        const found = runBackward(roots, () => rootGrads, { ...options, retainGraph: true });
        const changed = guards.changed();
        if (changed !== undefined) recorder.unsupported(`a hook changed ${changed}`);
        return finished(recorder, found, numbers);
      }),
    );
  } catch (error) {
    guards.restore();
    throw error;
  } finally {
    for (const { saved } of saves) saved.lend(null);
    numbers.takeBack();
  }
}

/** The plain numbers that become inputs: nodes get others in their places, which are observed. */
class BorrowedNumbers {
  private readonly borrowed: { at: number; saved: SavedTensor; node: Node; value: Tensor }[] = [];
  private readonly read = new Set<number>();
  private readonly signature: BackwardSignature;
  private readonly varying: readonly number[];

  constructor(signature: BackwardSignature, varying: readonly number[]) {
    this.signature = signature;
    this.varying = varying;
  }

  /** Makes the numbers placeholders, from this position on. */
  lend(recorder: Recorder, position: number): void {
    this.varying.forEach((at, i) => {
      const { saved, value } = this.signature.numbers[at] as LiftedNumber;
      const own = observedNumber(value, () => this.read.add(at));
      const node = recorder.placeholder(own, position + i, 'number');
      saved.lend(() => own);
      this.borrowed.push({ at, saved, node, value });
    });
  }

  /** Makes numbers that were read constants of the graph. Returns the positions of the others. */
  finish({ graph }: Recorder): number[] {
    const read = [...this.read];
    for (const { at, node, value } of this.borrowed) {
      if (!read.includes(at)) continue;
      graph.replaceUses({ node, output: 0 }, { number: value });
      graph.erase(node);
    }
    return this.varying.filter((at) => !read.includes(at));
  }

  takeBack(): void {
    for (const { saved } of this.borrowed) saved.lend(null);
  }
}

/**
 * What a node gets for a saved tensor: the tensor, or a view of its base as that is now. A compiled
 * function gets all that it saved, before its graph calls the hooks that fill the base.
 */
function valueOf({ value, freedBase }: LiftedSave): Tensor {
  if (freedBase === null) return value;
  const { sizes: shape, strides, storageOffset } = value;
  return noGrad(() => windowOn(freedBase, shape, strides, storageOffset));
}

function finished(
  recorder: Recorder,
  found: readonly (Tensor | null)[],
  numbers: BorrowedNumbers,
): CapturedBackward {
  const { graph } = recorder;
  graph.title = 'the graph of a backward pass';
  let next = 0;
  const results = found.map((t) => (t === null ? -1 : next++));
  graph.outputs = found.flatMap((t) => (t === null ? [] : [recorder.valueOf(t)]));
  const inputs = numbers.finish(recorder);
  return { graph, results, inputs };
}
