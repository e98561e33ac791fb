/** The order in which the groups below one root end their forward, by which backward prefetches. */
import type { FSDPParamGroup } from './param-group.js';

export class ForwardOrder {
  private readonly groups: FSDPParamGroup[] = [];
  /** The place of the last forward of each group. */
  private readonly places = new Map<FSDPParamGroup, number>();

  ended(group: FSDPParamGroup): void {
    this.places.set(group, this.groups.push(group) - 1);
  }

  /** The group whose backward is expected after that of `group`. */
  before(group: FSDPParamGroup): FSDPParamGroup | null {
    const place = this.places.get(group);
    return place === undefined ? null : (this.groups[place - 1] ?? null);
  }

  /** A group whose forward failed has no place. */
  remove(group: FSDPParamGroup): void {
    this.places.delete(group);
  }

  forget(): void {
    this.groups.length = 0;
    this.places.clear();
  }
}
