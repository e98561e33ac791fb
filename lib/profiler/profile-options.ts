/** Options of `profiler.profile`. */
import { DeviceError } from '../core/errors.js';
import { checkFlag, checkFunction, checkOneOf, optionsOf, unexpected } from '../core/options.js';
import { cudaStatus } from '../cuda/status.js';
import type { DeviceTimer } from './native-log.js';
import type { Profile } from './profile.js';
import type { ProfilerSchedule } from './schedule.js';
import type { SessionSettings } from './session.js';

/** What a profile records: `cpu`, the host and the streams of the CPU; `cuda`, GPUs. */
export type ProfilerActivity = 'cpu' | 'cuda';

/** Options of {@link profile}. */
export interface ProfileOptions {
  /** What to record. By default `cpu`, and `cuda` where there is a GPU. */
  readonly activities?: readonly ProfilerActivity[];
  /** Record the shapes and dtypes of the inputs of ops. Default false. */
  readonly recordShapes?: boolean;
  /** Record calls of modules, and for each op the path of its module. Default false. */
  readonly withModules?: boolean;
  /** Record memory that is allocated and freed. Default false. */
  readonly profileMemory?: boolean;
  /** Record the call site of each op in the program. Default false. */
  readonly withStack?: boolean;
  /** Which steps to record, by {@link schedule}; {@link Profile.step} ends a step. Default: all. */
  readonly schedule?: ProfilerSchedule;
  /** Called when a trace is ready: at the end, and after each cycle of a schedule. */
  readonly onTraceReady?: (profile: Profile) => void;
  /**
   * Who times GPUs: CUPTI, which shows each kernel, where it is found; or events around each
   * command. Default `'cupti'`.
   */
  readonly deviceTimer?: DeviceTimer;
}

/** The function whose options they are. */
export const OP = 'profiler.profile';
const NAMES =
  'activities recordShapes withModules profileMemory withStack schedule onTraceReady deviceTimer';
const ACTIVITIES: readonly ProfilerActivity[] = ['cpu', 'cuda'];
/** @throws ArgumentError, DeviceError */
export function settingsOf(options: ProfileOptions): SessionSettings {
  const {
    activities = defaultActivities(),
    recordShapes = false,
    withModules = false,
    profileMemory = false,
    withStack = false,
    schedule,
    onTraceReady,
    deviceTimer = 'cupti',
  } = optionsOf(OP, options, NAMES);
  checkActivities(activities);
  for (const [name, value] of Object.entries({
    recordShapes,
    withModules,
    profileMemory,
    withStack,
  }))
    checkFlag(OP, name, value);
  if (schedule !== undefined) checkFunction(OP, 'schedule', schedule);
  if (onTraceReady !== undefined) checkFunction(OP, 'onTraceReady', onTraceReady);
  checkOneOf(OP, 'deviceTimer', deviceTimer, ['cupti', 'events']);
  return {
    onHost: activities.includes('cpu'),
    timer: activities.includes('cuda') ? deviceTimer : null,
    recordShapes,
    withModules,
    withStack,
    profileMemory,
  };
}

const defaultActivities = (): readonly ProfilerActivity[] =>
  cudaStatus().available ? ['cpu', 'cuda'] : ['cpu'];

function checkActivities(activities: readonly ProfilerActivity[]): void {
  if (!Array.isArray(activities) || activities.length === 0)
    throw unexpected(OP, 'activities', "an array such as ['cpu', 'cuda']", activities);
  for (const each of activities) checkOneOf(OP, 'activities', each, ACTIVITIES);
  const status = cudaStatus();
  if (activities.includes('cuda') && !status.available)
    throw new DeviceError(
      `${OP}: 'cuda' records GPUs, and none can be used: ${status.reason}. Pass ` +
        "activities: ['cpu'], or leave it out: GPUs are then recorded where there are some",
      { op: OP, device: 'cuda' },
    );
}
