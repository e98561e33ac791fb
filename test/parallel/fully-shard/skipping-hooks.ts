/** `compiler.config.skipFsdpHooks` for a part of a test. */
import { compiler } from '../../../lib/index.js';

/** Runs `fn`, which does not wait for other ranks, with the setting. It comes back. */
export function skippingHooks<T>(value: boolean, fn: () => T): T {
  const { config } = compiler;
  const before = config.skipFsdpHooks;
  config.skipFsdpHooks = value;
  try {
    return fn();
  } finally {
    config.skipFsdpHooks = before;
  }
}
