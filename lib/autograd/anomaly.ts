/** Anomaly detection: records the call site of each forward op, and throws at the first NaN. */
import { AutogradError } from '../core/errors.js';
import { checkFlag } from '../core/options.js';
import type { Tensor } from '../core/tensor.js';
import type { Node } from './node.js';

let enabled = false;

/**
 * Turns anomaly detection on or off; it is slow, for debugging only. @see PyTorch
 * `torch.autograd.set_detect_anomaly`
 */
export function setDetectAnomaly(value: boolean): void {
  checkFlag('setDetectAnomaly', 'value', value);
  enabled = value;
}

/** Whether `setDetectAnomaly` is on. */
export function isAnomalyEnabled(): boolean {
  return enabled;
}

function framesOf(error: Error): string[] {
  return (error.stack ?? '').split('\n').slice(1);
}

/**
 * The folder of this library as stack frames spell it: the parent of autograd/, or the folder of
 * the published files.
 */
const ownFolder = ((): string => {
  const own = /\(?([^()\s]+):\d+:\d+\)?$/.exec(framesOf(new Error('here'))[0] ?? '')?.[1] ?? '';
  const folder = /^.*[\\/]dist[\\/]/.exec(own) ?? /^.*[\\/](?=autograd[\\/])/.exec(own);
  return folder?.[0] ?? 'nowhere';
})();

/** The stack frames of the program, if detection is on. @internal */
export function anomalyStack(): string | undefined {
  if (!enabled) return undefined;
  const frames = framesOf(new Error('forward'));
  const outside = frames.filter(
    (line) => !line.includes(ownFolder) && !line.includes('node:internal'),
  );
  return (outside.length > 0 ? outside : frames).join('\n');
}

/** @throws AutogradError naming the forward op and its call site, if a gradient holds NaN. */
export function checkAnomaly(node: Node, grads: readonly (Tensor | null)[]): void {
  if (!enabled) return;
  grads.forEach((g, i) => {
    if (g?.dtype.isFloatingPoint && g.isnan().any().item()) {
      throw new AutogradError(
        `backward of ${node.name} returned NaN in gradient ${i}.\n  the forward op was called ` +
          `here:\n${node.forwardStack ?? '    (unknown: it ran before detection was turned on)'}`,
        { op: node.name, gradient: i },
      );
    }
  });
}
