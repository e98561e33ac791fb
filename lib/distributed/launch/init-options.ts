/** Reads and checks the options of `initProcessGroup`. */
import { type Device, device } from '../../core/device.js';
import { ArgumentError, DeviceError } from '../../core/errors.js';
import { checkNumber, checkTimeout, unexpected, withDefaults } from '../../core/options.js';
import { Store } from '../stores/index.js';

const OP = 'initProcessGroup';
/** PyTorch's half an hour. @internal */
export const DEFAULT_TIMEOUT_MS = 1_800_000;

/** Options of {@link initProcessGroup}. */
export interface InitOptions {
  /**
   * The store through which the ranks find each other; needs `rank` and `worldSize`, unless the
   * environment has them. By default a {@link TCPStore} on MASTER_ADDR:MASTER_PORT.
   */
  store?: Store | null;
  /** This process's rank, from 0. By default the environment's. */
  rank?: number | null;
  /** The number of processes. By default the environment's. */
  worldSize?: number | null;
  /** Timeout of the rendezvous and of every collective. Half an hour by default. */
  timeoutMs?: number | null;
  /**
   * The device that `cuda` means for this rank, such as 1 or `'cuda:1'`. By default the rank's
   * number among the ranks of its machine.
   */
  deviceId?: number | string | Device | null;
  /**
   * `'env://'` (the default), `'tcp://host:port'` or `'file:///path'`, instead of a store. The file
   * is removed when all ranks have come.
   */
  initMethod?: string | null;
}

/** The options after the checks. @internal */
export interface ReadOptions {
  readonly store: Store | null;
  readonly rank: number | null;
  readonly worldSize: number | null;
  readonly timeoutMs: number;
  readonly deviceId: number | null;
  readonly initMethod: string | null;
}

/** @throws ArgumentError, DeviceError @internal */
export function readOptions(options: InitOptions): ReadOptions {
  const defaults: Required<InitOptions> = {
    store: null,
    rank: null,
    worldSize: null,
    timeoutMs: null,
    deviceId: null,
    initMethod: null,
  };
  const given = withDefaults<Required<InitOptions>>(OP, defaults, options);
  const { store, rank, worldSize, deviceId, initMethod } = given;
  const timeoutMs =
    given.timeoutMs ?? Number(process.env['SHARDWISE_TIMEOUT_MS'] ?? DEFAULT_TIMEOUT_MS);
  checkTimeout(OP, timeoutMs, { from: 1, whole: true });
  if (store !== null && !(store instanceof Store)) throw unexpected(OP, 'store', 'a store', store);
  if (
    initMethod !== null &&
    (typeof initMethod !== 'string' ||
      !/^(env:\/\/$|tcp:\/\/[^/]+:\d+$|file:\/\/\/.)/.test(initMethod))
  ) {
    throw unexpected(OP, 'initMethod', `'env://', 'tcp://host:port' or 'file:///path'`, initMethod);
  }
  if (store !== null && initMethod !== null)
    throw new ArgumentError(`${OP}: expected a store or an initMethod, got both`, { op: OP });
  if ((rank === null) !== (worldSize === null)) {
    throw new ArgumentError(
      `${OP}: expected rank and worldSize together, got only ` +
        `${rank === null ? 'worldSize' : 'rank'}`,
      { op: OP, rank, worldSize },
    );
  }
  return { store, rank, worldSize, timeoutMs, deviceId: deviceIndex(deviceId), initMethod };
}

function deviceIndex(deviceId: number | string | Device | null): number | null {
  if (deviceId === null) return null;
  if (typeof deviceId === 'number') {
    checkNumber(OP, 'deviceId', deviceId, { from: 0, to: 999, whole: true });
    return deviceId;
  }
  const found = device(deviceId as `cuda:${number}`);
  if (found.type !== 'cuda')
    throw new DeviceError(`${OP}: expected deviceId to be a GPU such as 'cuda:1', got ${found}`, {
      op: OP,
      device: String(found),
    });
  return found.index;
}
