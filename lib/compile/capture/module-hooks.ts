/** Full backward hooks of modules, which become part of lowered graphs. */
import { CompileError } from '../../core/errors.js';
import { checksHooks } from './backward.js';
import type { Recorder } from './recorder.js';

/**
 * Runs a hook. A hook with other effects than those on tensors must run in every backward pass: one
 * that changes attributes of its module, and one that computes nothing, such as a counter.
 */
export function runModuleHook<R>(recorder: Recorder, module: object, run: () => R): R {
  if (!checksHooks(recorder)) return run();
  const { graph, guards } = recorder;
  guards.addModule(module);
  const before = graph.nodes.length;
  const result = restoring(recorder, run);
  if (result === undefined && graph.nodes.length === before)
    recorder.unsupported('a full backward hook ran that computes nothing');
  return result;
}

/** Refuses errors, and changes of attributes, which it undoes. */
function restoring<R>(recorder: Recorder, run: () => R): R {
  const { guards } = recorder;
  try {
    const result = run();
    const changed = guards.changed();
    if (changed !== undefined) recorder.unsupported(`a full backward hook changed ${changed}`);
    return result;
  } catch (error) {
    guards.restore();
    if (error instanceof CompileError) throw error;
    return recorder.unsupported(`a full backward hook threw ${String(error)}`);
  }
}
