/** The time of a profile in which a device only communicates. */
import { coveredTime, type Span } from '../core/covered-time.js';
import { checkNumber, optionsOf, unexpected } from '../core/options.js';
import { profiler } from '../index.js';

/** Options of {@link exposedCommunication}. */
export interface ExposedCommunicationOptions {
  /** The rank whose time it is, where a profile has several. All by default, whose times add up. */
  rank?: number;
}

/**
 * Seconds of a profile in which a device runs collectives and no kernel: what communication adds to
 * a step. Profile a step from time to time, because a profile costs time itself.
 *
 * @throws ArgumentError for what is no profile, and for a bad rank
 * @example
 * const prof = profiler.profile({ activities: ['cpu'] }, () => model(x));
 * exposedCommunication(prof); // 0
 */
export function exposedCommunication(
  profile: profiler.Profile,
  options: ExposedCommunicationOptions = {},
): number {
  const op = 'exposedCommunication';
  const { rank = null } = optionsOf(op, options, 'rank');
  if (rank !== null) checkNumber(op, 'rank', rank, { from: 0, whole: true });
  if (!(profile instanceof profiler.Profile))
    throw unexpected(op, 'profile', 'what profiler.profile returns', profile);
  const byDevice = new Map<string, { collectives: Span[]; kernels: Span[] }>();
  for (const event of profile.kernels()) {
    if (event.kind === 'wait' || (rank !== null && event.rank !== rank)) continue;
    const key = `${event.rank} ${event.device}`;
    const found = byDevice.get(key) ?? { collectives: [], kernels: [] };
    byDevice.set(key, found);
    found[event.kind === 'collective' ? 'collectives' : 'kernels'].push(event);
  }
  const exposed = [...byDevice.values()].map(
    ({ collectives, kernels }) => coveredTime([...collectives, ...kernels]) - coveredTime(kernels),
  );
  return exposed.reduce((sum, time) => sum + time, 0) / 1e6;
}
