/** What guards know, in words: facts as sentences, and how a call differs from a capture. */

/** The first fact of a capture that does not hold for a call. */
export interface Difference {
  /** What differs: the path of an argument, of an attribute of a module, or a mode. */
  readonly path: string;
  /** The value at the capture. */
  readonly before: string;
  /** The value at the call. */
  readonly now: string;
}

/** `Scale.factor was 2 and is 5`. */
export function formatDifference({ path, before, now }: Difference): string {
  return `${path} was ${before} and is ${now}`;
}

/** The path of a property below `path`. */
export function propertyPath(path: string, name: string): string {
  return /^[A-Za-z_$][\w$]*$|^\d+$/.test(name)
    ? `${path}.${name}`
    : `${path}[${JSON.stringify(name)}]`;
}
