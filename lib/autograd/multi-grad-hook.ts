/** `registerMultiGradHook`: a hook that waits for the gradients of several tensors. */
import { CompileError } from '../core/errors.js';
import { layers } from '../core/hooks.js';
import { checkFunction, checkOneOf } from '../core/options.js';
import { defineFunction } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import { requireTensors } from '../ops/operand.js';
import { requiredEdge } from './accumulate-grad.js';
import { describeHook, madeHookOf, runMade } from './made-hooks.js';
import type { BackwardPass, HookHandle, Node, NodeObserver } from './node.js';

/** Options of {@link registerMultiGradHook}. */
export interface MultiGradHookOptions {
  /** Whether the hook waits for all gradients, or for the first. Default: `'all'`. */
  mode?: 'all' | 'any';
}

const MODES = ['all', 'any'] as const;

/**
 * Runs `fn` once in each backward pass that reaches one of the tensors. `'all'`: when the gradients
 * of all tensors that the pass reaches are complete, whether or not one has arrived. `'any'`: when
 * the first gradient is complete, before anything that computed the tensors is differentiated.
 * Gradients of leaves are not yet accumulated then. Nested passes are counted apart, and an empty
 * list never runs it.
 *
 * Unlike in PyTorch, `fn` receives no gradient. So none becomes the program's, and backward goes on
 * reusing and freeing them; `registerHook` is for hooks that look at one.
 *
 * @throws ArgumentError for what is no tensor, no function or no mode. @throws AutogradError for a
 * tensor that requires no gradient
 * @see PyTorch `torch.autograd.graph.register_multi_grad_hook`
 * @example
 * const [a, b] = [ones([2], { requiresGrad: true }), ones([2], { requiresGrad: true })];
 * autograd.registerMultiGradHook([a, b], () => console.log('both'), { mode: 'all' });
 * a.mul(b).sum().backward();
 */
export const registerMultiGradHook = defineFunction(
  'registerMultiGradHook(tensors, fn, *, mode)',
  (
    tensors: readonly Tensor[],
    fn: () => void,
    { mode = 'all' }: MultiGradHookOptions = {},
  ): HookHandle => {
    requireTensors(tensors, 'registerMultiGradHook');
    checkFunction('registerMultiGradHook', 'fn', fn);
    checkOneOf('registerMultiGradHook', 'mode', mode, MODES);
    const nodes = new Set(
      tensors.map((t, i) => requiredEdge(t, 'registerMultiGradHook', `tensors[${i}]`).node),
    );
    const { capture } = layers.backend;
    if (capture !== null && madeHookOf(fn)?.opaque !== undefined)
      if (capture.registersOpaque(tensors, fn, mode)) return { remove: cannotRemove };
    const observer = described(mode === 'all' ? afterAll([...nodes], fn) : atFirst(fn), fn, mode);
    const handles = [...nodes].map((node) => node.addObserver(observer));
    return {
      remove: () => {
        for (const handle of handles.splice(0)) handle.remove();
      },
    };
  },
);

function cannotRemove(): never {
  throw new CompileError(
    'remove: the hook was registered while compile captured a function, and every run of the ' +
      'graph registers it anew. Register it only where it is to stay, or outside of the function.',
  );
}

/** An observer that runs a described hook does what that does. */
function described(observer: NodeObserver, fn: () => void, mode: string): NodeObserver {
  const does = madeHookOf(fn);
  if (does === undefined) return observer;
  const facts = (): readonly unknown[] => [mode, does.facts()];
  return describeHook(observer, { ...does, owner: observer, facts });
}

function afterAll(nodes: readonly Node[], fn: () => void): NodeObserver {
  const missing = new WeakMap<BackwardPass, number>();
  return (pass) => {
    const before = missing.get(pass) ?? nodes.filter((node) => pass.reaches(node)).length;
    missing.set(pass, before - 1);
    if (before === 1) runMade(fn);
  };
}

function atFirst(fn: () => void): NodeObserver {
  const seen = new WeakSet<BackwardPass>();
  return (pass, arrived) => {
    if (!arrived || seen.has(pass)) return;
    seen.add(pass);
    runMade(fn);
  };
}
