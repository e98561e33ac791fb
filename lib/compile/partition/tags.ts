/** Tags of nodes that say what backward computes again. */
import type { Node } from '../graph/node.js';

/** The tag of a node that backward computes again; a name of its region may follow, `:a`. */
const RECOMPUTE = 'mustRecompute';
/** The tag of a collective that backward runs again: its results are freed after forward. */
export const RESHARD = 'reshardAfterForward';
/** The tags of single nodes of a region. Only the last two leave a choice to a partition. */
export const SAVE = 'mustSave';
export const PREFER_SAVE = 'preferSave';
export const PREFER_RECOMPUTE = 'preferRecompute';

/** The tag of a node of a train step that computes again what forward did not keep. @internal */
export const RECOMPUTED = 'recomputed';

/** Whether a tag says of the node that backward computes it again. @internal */
export function isTagged(node: Node): boolean {
  return regionOf(node) !== undefined || isResharded(node);
}

/** Whether backward communicates again. @internal */
export function isResharded({ tags }: Node): boolean {
  return tags.has(RESHARD);
}

/**
 * The name of the region of `mustRecompute` or `mustRecompute:a`; of the outer one where several
 * nest.
 *
 * @internal
 */
export function regionOf({ tags }: Node): string | undefined {
  for (const tag of tags) if (isRegion(tag)) return tag.slice(RECOMPUTE.length);
  return undefined;
}

/** Whether the tag is that of a region. @internal */
const isRegion = (tag: string): boolean => tag === RECOMPUTE || tag.startsWith(`${RECOMPUTE}:`);

/** The tag of the region of this number. @internal */
export const regionTag = (region: number): string => `${RECOMPUTE}:${region}`;

/** The tags that say what backward computes again. @internal */
export function recomputeTags(tags: ReadonlySet<string>): ReadonlySet<string> {
  if (tags.size === 0) return tags;
  return new Set([...tags].filter((tag) => isRegion(tag) || POLICIES.has(tag)));
}

const POLICIES: ReadonlySet<string> = new Set([SAVE, PREFER_SAVE, PREFER_RECOMPUTE]);
