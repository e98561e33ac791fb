/** Tags of nodes that say what backward computes again. */
import type { Node } from '../graph/node.js';

const RECOMPUTE = 'mustRecompute';
const RESHARD = 'reshardAfterForward';

/** Whether a tag says of the node that backward computes it again. @internal */
export function isTagged(node: Node): boolean {
  return regionOf(node) !== undefined || isResharded(node);
}

/** Whether backward communicates again. @internal */
export function isResharded({ tags }: Node): boolean {
  return tags.has(RESHARD);
}

/** The name of the region of `mustRecompute` or `mustRecompute:a`. @internal */
export function regionOf({ tags }: Node): string | undefined {
  for (const tag of tags)
    if (tag === RECOMPUTE || tag.startsWith(`${RECOMPUTE}:`)) return tag.slice(RECOMPUTE.length);
  return undefined;
}
