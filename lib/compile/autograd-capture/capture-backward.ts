/** Captures a backward pass: the engine runs once on borrowed tensors, hooks included. */
import { type EngineOptions, runBackward } from '../../autograd/engine.js';
import { noGrad } from '../../autograd/grad-mode.js';
import type { Edge } from '../../autograd/node.js';
import type { Tensor } from '../../core/tensor.js';
import { asStrided } from '../../ops/as-strided.js';
import { capturing } from '../capture/capture.js';
import { recording } from '../capture/levels.js';
import { Recorder } from '../capture/recorder.js';
import { GraphModule } from '../graph/graph-module.js';
import { GuardCollector } from '../guards/guard-collector.js';
import type { BackwardSignature, LiftedSave } from './signature.js';

/** A captured pass. */
export interface CapturedBackward {
  /** Takes the lifts and the draws of a signature. */
  readonly module: GraphModule;
  /** For each capture of the pass, which result it is; -1 for null. */
  readonly results: readonly number[];
}

/** @throws CompileError for a hook that a graph cannot repeat */
export function captureBackward(
  signature: BackwardSignature,
  roots: readonly Edge[],
  rootGrads: readonly Tensor[],
  options: EngineOptions,
): CapturedBackward {
  const guards = new GuardCollector();
  for (const module of signature.modules) guards.addModule(module);
  const recorder = new Recorder(guards, 'backward');
  const { saves } = signature;
  const withGrad = new Set(signature.tensorsWithGrad);
  try {
    return capturing(recorder, () =>
      recording(recorder, () => {
        signature.lifts.forEach((t, i) => {
          recorder.placeholder(t, i, 'lift');
        });
        for (const draw of signature.draws) recorder.drawPlaceholder(draw);
        for (const t of withGrad) recorder.readsGrad(t);
        recorder.calls = signature.calls;
        for (const save of saves) save.saved.lend(() => valueOf(save));
        const found = runBackward(roots, () => rootGrads, { ...options, retainGraph: true });
        const changed = guards.changed();
        if (changed !== undefined) recorder.unsupported(`a hook changed ${changed}`);
        return finished(recorder, found);
      }),
    );
  } catch (error) {
    guards.restore();
    throw error;
  } finally {
    for (const { saved } of saves) saved.lend(null);
  }
}

/** What a node gets for a saved tensor: the tensor, or a view of its base as that is now. */
function valueOf({ value, freedBase }: LiftedSave): Tensor {
  if (freedBase === null) return value;
  const { shape, strides, storageOffset } = value;
  return noGrad(() => asStrided(freedBase, shape, strides, storageOffset));
}

function finished(recorder: Recorder, found: readonly (Tensor | null)[]): CapturedBackward {
  const { graph } = recorder;
  graph.title = 'the graph of a backward pass';
  let next = 0;
  const results = found.map((t) => (t === null ? -1 : next++));
  graph.outputs = found.flatMap((t) => (t === null ? [] : [recorder.valueOf(t)]));
  return { module: new GraphModule(graph), results };
}
