/**
 * Later traces of a front graph, for other backward passes than that of its first trace. They run
 * on tensors without memory that are like those of the first trace, in the modes that were on then:
 * the tensors of the program may have changed by then, or be freed.
 */
import { enableGrad } from '../../autograd/grad-mode.js';
import { isAsynchronous, markAsynchronous } from '../../core/asynchronous.js';
import { callContext } from '../../core/call-context.js';
import { getDefaultDevice, setDefaultDevice } from '../../core/device.js';
import { getDefaultDtype, setDefaultDtype } from '../../core/dtype.js';
import { lossMode } from '../../core/modes.js';
import type { Storage } from '../../core/storage.js';
import { Tensor } from '../../core/tensor.js';
import { InputNode, withoutMemory } from '../capture/borrowed.js';
import { isPlainNumber } from '../capture/number-inputs.js';
import { copyGraph, copyOfValue } from '../graph/copy.js';
import type { RunValue } from '../graph/effects.js';
import { GraphModule } from '../graph/graph-module.js';
import { Node } from '../graph/node.js';
import { traceJoint } from './joint.js';
import type { JointTrace, TracedPass } from './joint-trace.js';

/** Traces the front graph again, in a backward pass. @internal */
export type Retrace = (pass: TracedPass) => JointTrace;

/** What traces `module` again. `primals`: those of the first trace. @internal */
export function retraceOf(module: GraphModule, primals: readonly RunValue[]): Retrace {
  const inputs = standInsOf(primals);
  const inModes = currentModes();
  let front: GraphModule | null = null;
  return (pass) => {
    front ??= withConstantsAsInputs(module);
    const trace = (): JointTrace => traceJoint(front as GraphModule, inputs, pass);
    return inModes(() => enableGrad(trace));
  };
}

/** Apart from {@link retraceOf}, so that what is returned there does not hold the tensors. */
function standInsOf(primals: readonly RunValue[]): RunValue[] {
  const standIns = new StandIns();
  return primals.map((value) => (value instanceof Tensor ? standIns.of(value) : value));
}

/** Runs functions in the modes that are on now. */
function currentModes(): <T>(fn: () => T) => T {
  const set = (dtype = getDefaultDtype(), device = getDefaultDevice(), { parallel } = lossMode) => {
    return (): void => {
      setDefaultDtype(dtype);
      setDefaultDevice(device);
      lossMode.parallel = parallel;
    };
  };
  const enter = set();
  return (fn) => {
    const leave = set();
    const { isBackward } = callContext;
    enter();
    callContext.isBackward = false;
    try {
      return fn();
    } finally {
      callContext.isBackward = isBackward;
      leave();
    }
  };
}

/** The front graph with its constants as inputs, behind the others. @internal */
export function withConstantsAsInputs({ graph: from }: GraphModule): GraphModule {
  const { graph } = copyGraph(from);
  const inputs = new Map<Node, Node>();
  for (const node of graph.nodes)
    if (node.kind === 'constant')
      inputs.set(node, new Node({ ...node, kind: 'placeholder', tensor: null }, node.id));
  const others = graph.nodes.filter(({ kind }) => kind === 'call' || kind === 'effect');
  for (const node of others) {
    node.inputs = node.inputs.map((value) => copyOfValue(value, inputs));
    if (node.into !== null) node.into = copyOfValue(node.into, inputs);
  }
  graph.outputs = graph.outputs.map((value) => copyOfValue(value, inputs));
  graph.nodes.splice(0, graph.nodes.length, ...graph.placeholders, ...inputs.values(), ...others);
  return new GraphModule(graph);
}

/** Tensors without memory that stand for others, and share memory as those do. */
class StandIns {
  private readonly tensors = new Map<Tensor, Tensor>();
  private readonly storages = new Map<Storage, Storage>();

  of(t: Tensor): Tensor {
    if (isPlainNumber(t)) return t;
    let made = this.tensors.get(t);
    if (made === undefined) {
      made = this.like(t);
      this.tensors.set(t, made);
    }
    return made;
  }

  private like(t: Tensor): Tensor {
    const { sharding, currentGradFn, gradTensor } = t;
    const made = sharding === null ? this.plain(t) : sharding.withLocal(this.of(sharding.local));
    made.leafRequiresGrad = t.leafRequiresGrad;
    if (currentGradFn !== null) made.node = new InputNode(1, []);
    if (gradTensor !== null) made.gradTensor = this.of(gradTensor);
    return made;
  }

  private plain(t: Tensor): Tensor {
    const { sizes: shape, strides, storageOffset, dtype, device } = t;
    const storage = this.storageOf(t.storage as Storage);
    const made = new Tensor(shape, strides, storageOffset, dtype, device, storage);
    made.inPlaceForbidden = t.inPlaceForbidden;
    if (isAsynchronous(t)) markAsynchronous(made, true);
    return made;
  }

  private storageOf(real: Storage): Storage {
    let made = this.storages.get(real);
    if (made === undefined) {
      made = withoutMemory(real);
      this.storages.set(real, made);
    }
    return made;
  }
}
