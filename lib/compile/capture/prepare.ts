/** Makes what arguments would else make at their first use, because their guards compare it. */
import { PREPARE_CAPTURE, type PreparesCapture } from '../../core/prepare-capture.js';
import { Walk } from '../guards/object-walk.js';

/** Prepares all arguments, such as the states of optimizers, for a capture. */
export function prepare(args: readonly unknown[]): void {
  new Walk((item) => {
    if (typeof item === 'object' && item !== null && PREPARE_CAPTURE in item)
      (item as PreparesCapture)[PREPARE_CAPTURE]();
    return true;
  }).value([...args]);
}
