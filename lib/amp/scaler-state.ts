/** The saved state of a scaler: PyTorch's form, and that of earlier versions. */
import { ArgumentError } from '../core/errors.js';
import { checkNumber, optionsOf } from '../core/options.js';

/** State of a scaler, in PyTorch's form and with its names; empty when it is not enabled. */
export interface GradScalerState {
  /** The factor of the loss. */
  scale: number;
  /** The factor by which the scale grows. */
  growth_factor: number;
  /** The factor by which the scale shrinks after an overflow. */
  backoff_factor: number;
  /** The number of steps without overflow after which the scale grows. */
  growth_interval: number;
  /** The number of steps since the last overflow or growth. */
  _growth_tracker: number;
}

/** The state that earlier versions saved. */
export interface EarlierGradScalerState {
  scale: number;
  growthFactor: number;
  backoffFactor: number;
  growthInterval: number;
  growthTracker: number;
}

/** What {@link GradScaler.loadStateDict} takes. */
export type LoadedScalerState = GradScalerState | EarlierGradScalerState | Record<string, never>;

/**
 * A state in PyTorch's form.
 *
 * @throws ArgumentError for the state of a scaler that was not enabled, and for values that are not
 * numbers
 */
export function readScalerState(given: LoadedScalerState): GradScalerState {
  const op = 'GradScaler.loadStateDict';
  if (Object.keys(optionsOf(op, given)).length === 0)
    throw new ArgumentError(
      'GradScaler: the state is empty; it was saved by a scaler that was not enabled',
    );
  const { scale, growth_factor, backoff_factor, growth_interval, _growth_tracker } =
    'growthFactor' in given
      ? withPyTorchNames(given as EarlierGradScalerState)
      : (given as GradScalerState);
  const state = { scale, growth_factor, backoff_factor, growth_interval, _growth_tracker };
  for (const [name, value] of Object.entries(state)) checkNumber(op, name, value, { from: 0 });
  return state;
}

const withPyTorchNames = (earlier: EarlierGradScalerState): GradScalerState => ({
  scale: earlier.scale,
  growth_factor: earlier.growthFactor,
  backoff_factor: earlier.backoffFactor,
  growth_interval: earlier.growthInterval,
  _growth_tracker: earlier.growthTracker,
});
