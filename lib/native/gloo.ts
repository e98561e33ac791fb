/**
 * gloo-engine.so: opened when ranks of several machines need it, or the doctor asks. Every
 * candidate that fails keeps its reason.
 */
import type { Addon } from './addon.js';
import { reasonAlone } from './libraries.js';
import { glooEngineCandidates } from './load.js';

/** What its absence turns off. */
export const WITHOUT_GLOO =
  'CPU tensors do not pass between machines, and GPUs of several machines do not meet: install libgloo0 (to build here: libgloo-dev)';

export interface GlooSearch {
  /** Null where it cannot be used. */
  path: string | null;
  tried: { path: string; reason: string }[];
}

/** Opens it, once in a process. */
export function openGloo(addon: Addon): GlooSearch {
  const tried: GlooSearch['tried'] = [];
  for (const path of glooEngineCandidates()) {
    const reason = addon.openGloo(path);
    if (reason === undefined) return { path, tried };
    tried.push({ path, reason: reasonAlone(path, reason) });
  }
  if (tried.length === 0)
    tried.push({
      path: 'gloo-engine.so',
      reason: 'neither in build/Release nor in prebuilds: it was built without libgloo-dev',
    });
  return { path: null, tried };
}

/** The reasons as lines of an error. */
export function describeTried({ tried }: GlooSearch): string {
  return tried.map(({ path, reason }) => `\n  tried ${path}: ${reason}`).join('');
}
