/**
 * The copy op, which the eager backend itself needs (for `updates` and `out`), looked up once so
 * that eager imports no op.
 */
import type { AnyOp } from '../core/op.js';
import { opByName } from '../core/op.js';

let found: AnyOp | undefined;

export function copyOp(): AnyOp {
  if (found === undefined) found = opByName('copy');
  return found as AnyOp;
}
