/**
 * Distributed tensors in lowered graphs, whose ops are on local shards. An effect on a distributed
 * tensor itself, such as setting its `.grad`, gets an input of the graph that is the tensor, or a
 * tensor that the graph puts together.
 */
import type { Sharding } from '../../core/sharding.js';
import type { Tensor } from '../../core/tensor.js';
import { metaOf, type Node, type Value } from '../graph/node.js';
import type { Recorder } from './recorder.js';

/** Repeats that a graph puts a distributed tensor together. */
export function recordDistribute(
  recorder: Recorder,
  local: Tensor,
  { sharding }: { sharding: Sharding },
): Tensor {
  const t = sharding.withLocal(local);
  // In a lowered graph the local shard is enough, unless an effect needs the tensor.
  if (recorder.level !== 'lowered') define(recorder, t);
  return t;
}

/** Adds the node that puts a distributed tensor together, from a local shard that is known. */
export function define(recorder: Recorder, t: Tensor): Value {
  const sharding = t.sharding as Sharding;
  const node = recorder.addEffect('distribute', {
    inputs: [recorder.valueOf(sharding.local)],
    params: { sharding },
    metas: [metaOf(t)],
  });
  recorder.define(t, { node, output: 0 });
  return { node, output: 0 };
}

/** Inputs that are distributed tensors. Their local shards are other inputs. */
export class WholeInputs {
  private readonly nodes = new Map<Tensor, Node>();

  /** Makes a distributed tensor an input. */
  add(recorder: Recorder, t: Tensor): Node {
    const fields = { kind: 'placeholder', name: 'whole', metas: [metaOf(t)] } as const;
    const node = recorder.graph.add(fields);
    this.nodes.set(t, node);
    return node;
  }

  /** The value of a distributed tensor for an effect. `isOwn`: whether the capture made it. */
  valueOf(recorder: Recorder, t: Tensor, isOwn: boolean): Value {
    const input = this.nodes.get(t);
    if (recorder.isWholeStep && !isOwn && !recorder.borrowed.has(t)) return recorder.outerValue(t);
    if (input === undefined && !isOwn)
      recorder.unsupported('a distributed tensor from outside was used as a whole by an effect');
    if (input === undefined) return define(recorder, t);
    const value = { node: input, output: 0 };
    recorder.define(t, value);
    return value;
  }
}
