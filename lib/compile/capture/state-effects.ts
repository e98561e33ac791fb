/**
 * Effects on versions and random states. When the run of a graph is recorded, the new graph repeats
 * them as they are, on its own tensors.
 */
import type { Generator } from '../../core/random.js';
import type { Sharding } from '../../core/sharding.js';
import { Tensor } from '../../core/tensor.js';
import type { EffectName, RunValue } from '../graph/effects.js';
import { StateValue } from '../graph/state-value.js';
import { recordDistribute } from './distributed.js';
import type { AttributeSet } from './epilogue.js';
import { fill } from './opaque-hooks.js';
import type { Recorder } from './recorder.js';

/** Records an effect and does to the tensors of the capture what it does. */
export function recordStateEffect(
  recorder: Recorder,
  name: EffectName,
  operands: readonly RunValue[],
  params: { version?: number; generator?: Generator; sharding?: Sharding },
): RunValue {
  const [first, second] = operands;
  if (name === 'setAttribute')
    return recordAttribute(recorder, first as Tensor | undefined, params as never);
  if (name === 'distribute') return recordDistribute(recorder, first as Tensor, params as never);
  const node = recorder.addEffect(name, {
    inputs: operands.map((value) => {
      if (value instanceof Tensor) return recorder.valueOf(value);
      return value instanceof StateValue
        ? { node: value.node as typeof node, output: 0 }
        : recorder.unsupported('a version was used that no captured effect read');
    }),
    params,
  });
  switch (name) {
    case 'callOpaque':
      fill(operands as readonly Tensor[]);
      return null;
    case 'readVersion':
      return new StateValue(node, (first as Tensor).currentVersion);
    case 'setVersion': {
      const base = second instanceof StateValue ? (second.now as number) : 0;
      (first as Tensor).sharedVersion().value = base + (params.version ?? 0);
      return null;
    }
    case 'keepRng': {
      const generator = params.generator as Generator;
      recorder.draws.remember(generator);
      return new StateValue(node, generator.remember());
    }
    default:
      ((first as StateValue).now as () => void)();
      return null;
  }
}

/** An attribute that a run of a lowered graph sets at its end, to what it was set last. */
function recordAttribute(recorder: Recorder, t: Tensor | undefined, set: AttributeSet): null {
  if (!recorder.hasEpilogue || recorder.inBackward)
    recorder.unsupported(`the attribute ${set.name} of a module was set`);
  const { attributes } = recorder.epilogue;
  for (const other of attributes.keys())
    if (other.module === set.module && other.name === set.name) attributes.delete(other);
  attributes.set(set, t ?? null);
  return null;
}
