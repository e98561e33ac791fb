/** Lists that live as long as all objects that stand for them. */

class Level<T> {
  readonly next = new WeakMap<object, Level<T>>();
  readonly list: T[] = [];
}

/**
 * A list for each sequence of objects. What stands in a list may refer to the objects: if one of
 * them is garbage otherwise, nothing can ask for the list any more, and it is garbage, too.
 */
export class WeakLists<T> {
  private readonly first = new Level<T>();

  /** The list of a sequence. */
  of(objects: Iterable<object>): T[] {
    let level = this.first;
    for (const object of objects) {
      let next = level.next.get(object);
      if (next === undefined) {
        next = new Level();
        level.next.set(object, next);
      }
      level = next;
    }
    return level.list;
  }
}
