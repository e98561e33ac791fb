/**
 * Attributes of modules that a graph sets. A run that ends by an error leaves them as they were:
 * what gives modules their parameters back may be a later node. The second run of a checkpoint ends
 * so.
 */
import type { AttributeParams } from './effects.js';
import type { Node } from './node.js';

type Attributes = Record<string, unknown>;

/** Where a graph sets attributes: each once. */
export function attributesSetBy(nodes: readonly Node[]): readonly AttributeParams[] {
  const found = nodes.flatMap(({ effect, params }) =>
    effect === 'setAttribute' ? (params as AttributeParams) : [],
  );
  return found.filter(
    ({ module, name }, i) =>
      found.findIndex((other) => other.module === module && other.name === name) === i,
  );
}

/** Keeps what they have now. Returns what gives them that again. */
export function keptAttributes(set: readonly AttributeParams[]): () => void {
  const before = set.map(({ module, name }) => Object.getOwnPropertyDescriptor(module, name));
  return () => {
    for (const [i, { module, name }] of set.entries()) {
      const old = before[i];
      if (old === undefined) delete (module as Attributes)[name];
      else (module as Attributes)[name] = old.value;
    }
  };
}
