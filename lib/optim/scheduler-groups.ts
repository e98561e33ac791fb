/** What schedules read and write in the groups of an optimizer. */
import { ArgumentError } from '../core/errors.js';
import { checkNumber, unexpected } from '../core/options.js';
import type { Optimizer } from './optimizer.js';

/** A group as a schedule sees it. */
export interface ScheduledGroup {
  lr: number;
  /** The rate that schedules began with. */
  initialLr?: number;
  momentum?: number;
  betas?: readonly [number, number];
  /** Levels of OneCycleLR, which PyTorch keeps here, too. */
  maxLr?: number;
  minLr?: number;
  baseMomentum?: number;
  maxMomentum?: number;
}

/** The groups of an optimizer. */
export function groupsOf(optimizer: Optimizer): ScheduledGroup[] {
  return optimizer.paramGroups as unknown as ScheduledGroup[];
}

/** Sets momentum, or the first of the betas. */
export function setMomentum(group: ScheduledGroup, value: number): void {
  if (group.betas !== undefined) group.betas = [value, group.betas[1]];
  else group.momentum = value;
}

/**
 * One value for each group. @throws ArgumentError for a list of another length, and for what is not
 * a number
 */
export function perGroup(
  op: string,
  name: string,
  value: number | readonly number[],
  optimizer: Optimizer,
): number[] {
  const groups = optimizer.paramGroups.length;
  const list = Array.isArray(value)
    ? [...(value as readonly number[])]
    : Array<number>(groups).fill(value as number);
  if (list.length !== groups)
    throw unexpected(op, name, `one number, or ${groups}, one for each group`, value);
  for (const each of list) checkNumber(op, name, each);
  return list;
}

/**
 * What cycles beside the rate, for each group. @throws ArgumentError for what is none from 0 to 1,
 * and if the optimizer has neither momentum nor betas
 */
export function momentaOf(
  op: string,
  name: string,
  value: number | readonly number[],
  optimizer: Optimizer,
): number[] {
  const list = perGroup(op, name, value, optimizer);
  for (const each of list) checkNumber(op, name, each, { from: 0, to: 1 });
  if (
    groupsOf(optimizer).some((group) => group.momentum === undefined && group.betas === undefined)
  )
    throw new ArgumentError(
      `${op}: cycleMomentum needs an optimizer with momentum or betas, ${optimizer.constructor.name} has neither`,
      { op },
    );
  return list;
}
