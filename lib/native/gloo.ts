/**
 * Opens gloo-engine.so when ranks of several machines need it, or for the doctor. Records why each
 * candidate failed.
 */
import type { Addon } from './addon.js';
import { reasonAlone } from './libraries.js';
import { glooEngineCandidates } from './load.js';

/** What does not work without it. */
export const WITHOUT_GLOO =
  'collectives between machines do not work, neither on the CPU nor on GPUs: install libgloo0 ' +
  '(to build here: libgloo-dev)';

export interface GlooSearch {
  /** Null if it cannot be used. */
  path: string | null;
  tried: { path: string; reason: string }[];
}

/** Opens it, once per process. */
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
