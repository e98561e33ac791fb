/** What a capture watches: modules whose flags are read or that are called, so that `compile` can guard on them. */

/** The watcher of the capture that runs now, if one does. @internal */
export const moduleWatch: { saw: ((module: object) => void) | null } = { saw: null };
